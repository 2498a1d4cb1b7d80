// SPDX-License-Identifier: Apache-2.0
#include "sys/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "sys/files.h"

namespace glovebox::sys {
namespace {

// One netlink request, built in place: header, family header, attributes that may nest.
class Message {
 public:
  template <class FamilyHeader>
  Message(uint16_t type, uint16_t flags, const FamilyHeader& family) : bytes_(sizeof(nlmsghdr), '\0') {
    header()->nlmsg_type = type;
    header()->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    append(&family, sizeof family);
  }
  void add(uint16_t type, const void* data, size_t size) {
    const rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(size)), type};
    append(&attribute, sizeof attribute);
    append(data, size);
  }
  void add(uint16_t type, const std::string& text) { add(type, text.c_str(), text.size() + 1); }
  void add(uint16_t type, uint32_t value) { add(type, &value, sizeof value); }
  size_t begin(uint16_t type) {
    const size_t at = bytes_.size();
    add(type, nullptr, 0);
    return at;
  }
  void end(size_t at) {
    const auto size = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at + offsetof(rtattr, rta_len), &size, sizeof size);
  }
  void append(const void* data, size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
    bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  }
  std::string_view finish(uint32_t sequence) {
    header()->nlmsg_len = static_cast<uint32_t>(bytes_.size());
    header()->nlmsg_seq = sequence;
    return bytes_;
  }

 private:
  nlmsghdr* header() { return reinterpret_cast<nlmsghdr*>(bytes_.data()); }
  std::string bytes_;
};

void return_to(int home) {
  if (::setns(home, CLONE_NEWNET) == 0) return;
  log::error("netns.lost", {{"message", errno_text(errno)}});
  std::abort();
}

}  // namespace

Result<UniqueFd> open_netns() { return open_fd("/proc/thread-self/ns/net", O_RDONLY); }

Result<void> in_netns(int fd, const std::function<Result<void>()>& work) {
  GB_TRY(const UniqueFd home, open_netns());
  if (::setns(fd, CLONE_NEWNET) != 0) return fail_errno("setns");
  auto done = work();
  return_to(home.get());
  return done;
}

Result<UniqueFd> in_new_netns(const std::function<Result<void>()>& work) {
  GB_TRY(const UniqueFd home, open_netns());
  if (::unshare(CLONE_NEWNET) != 0) return fail_errno("unshare");
  auto made = open_netns();
  Result<void> done;
  if (made) done = work();
  return_to(home.get());
  if (!done) return fail(done.error());
  return made;
}

Result<RouteSocket> RouteSocket::open() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd) return fail_errno("netlink socket");
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return fail_errno("netlink bind");
  return RouteSocket(std::move(fd));
}

// Sends one request and reads until its acknowledgement; `state`: of the interface that the answer describes.
Result<void> RouteSocket::talk(std::string_view message, State* state) {
  if (::send(fd_.get(), message.data(), message.size(), 0) < 0) return fail_errno("netlink send");
  alignas(nlmsghdr) char buffer[16 << 10];
  while (true) {
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("netlink receive");
    auto left = static_cast<uint32_t>(got);
    for (auto* m = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
      if (m->nlmsg_seq != sequence_) continue;
      if (m->nlmsg_type == RTM_NEWLINK && state != nullptr) {
        const auto* link = static_cast<ifinfomsg*>(NLMSG_DATA(m));
        *state = {static_cast<uint32_t>(link->ifi_index), link->ifi_flags};
      }
      if (m->nlmsg_type != NLMSG_ERROR) continue;
      const int error = -static_cast<nlmsgerr*>(NLMSG_DATA(m))->error;
      if (error == 0) return {};
      const Code code = error == EEXIST ? Code::kAlreadyExists : error == ENODEV ? Code::kNotFound : Code::kIo;
      return fail(code, "netlink: " + errno_text(error));
    }
  }
}

Result<void> RouteSocket::add_veth(const std::string& name, const std::string& peer, int peer_netns) {
  const ifinfomsg link{};
  Message m(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, link);
  m.add(IFLA_IFNAME, name);
  const size_t info = m.begin(IFLA_LINKINFO);
  m.add(IFLA_INFO_KIND, std::string("veth"));
  const size_t data = m.begin(IFLA_INFO_DATA);
  const size_t other = m.begin(VETH_INFO_PEER);
  m.append(&link, sizeof link);
  m.add(IFLA_IFNAME, peer);
  m.add(IFLA_NET_NS_FD, static_cast<uint32_t>(peer_netns));
  m.end(other);
  m.end(data);
  m.end(info);
  return talk(m.finish(++sequence_));
}

Result<RouteSocket::State> RouteSocket::state_of(const std::string& name) {
  Message m(RTM_GETLINK, 0, ifinfomsg{});
  m.add(IFLA_IFNAME, name);
  State state;
  GB_TRYV(talk(m.finish(++sequence_), &state));
  if (state.index == 0) return fail(Code::kNotFound, "no interface " + name);
  return state;
}

Result<uint32_t> RouteSocket::index_of(const std::string& name) {
  GB_TRY(const State state, state_of(name));
  return state.index;
}

Result<void> RouteSocket::wait_running(const std::string& name) {
  // Newer kernels settle the link's state when they are asked for it in this way.
  ethtool_value question{ETHTOOL_GLINK, 0};
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&question);
  (void)::ioctl(fd_.get(), SIOCETHTOOL, &request);
  for (int tries = 0; tries < 5000; ++tries) {
    GB_TRY(const State state, state_of(name));
    if ((state.flags & IFF_RUNNING) != 0) return {};
    ::usleep(200);
  }
  return fail(Code::kTimeout, name + " did not start to carry packets");
}

Result<void> RouteSocket::set_up(uint32_t index) {
  ifinfomsg link{};
  link.ifi_index = static_cast<int>(index);
  link.ifi_flags = link.ifi_change = IFF_UP;
  Message m(RTM_NEWLINK, 0, link);
  return talk(m.finish(++sequence_));
}

Result<void> RouteSocket::add_address(uint32_t index, uint32_t address, int prefix) {
  ifaddrmsg wanted{};
  wanted.ifa_family = AF_INET;
  wanted.ifa_prefixlen = static_cast<uint8_t>(prefix);
  wanted.ifa_index = index;
  Message m(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, wanted);
  m.add(IFA_LOCAL, htonl(address));
  m.add(IFA_ADDRESS, htonl(address));
  return talk(m.finish(++sequence_));
}

Result<void> RouteSocket::add_default_route(uint32_t index, uint32_t gateway) {
  rtmsg route{};
  route.rtm_family = AF_INET;
  route.rtm_table = RT_TABLE_MAIN;
  route.rtm_protocol = RTPROT_STATIC;
  route.rtm_scope = RT_SCOPE_UNIVERSE;
  route.rtm_type = RTN_UNICAST;
  Message m(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route);
  m.add(RTA_GATEWAY, htonl(gateway));
  m.add(RTA_OIF, index);
  return talk(m.finish(++sequence_));
}

Result<void> set_net_option(const std::string& name, std::string_view value) {
  const std::string path = "/proc/sys/net/" + name;
  GB_TRY(const UniqueFd file, open_fd(path, O_WRONLY));
  if (::write(file.get(), value.data(), value.size()) < 0) return fail_errno(path);
  return {};
}

}  // namespace glovebox::sys
