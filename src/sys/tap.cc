// SPDX-License-Identifier: Apache-2.0
#include "sys/tap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/tc_act/tc_mirred.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"
#include "sys/files.h"
#include "sys/netns.h"

namespace glovebox::sys {
namespace {

ifreq request_for(const std::string& name) {
  ifreq request{};
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  return request;
}

// rtnetlink(7) messages with nested attributes.
class Message {
 public:
  Message(uint16_t type, uint16_t flags, const tcmsg& body) {
    nlmsghdr header{};
    header.nlmsg_type = type;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    append(&header, sizeof header);
    append(&body, sizeof body);
  }
  void attribute(uint16_t type, const void* data, size_t size) {
    const rtattr head{static_cast<uint16_t>(sizeof(rtattr) + size), type};
    append(&head, sizeof head);
    append(data, size);
  }
  void text(uint16_t type, const char* value) { attribute(type, value, std::strlen(value) + 1); }
  size_t open(uint16_t type) {
    const size_t at = bytes_.size();
    attribute(type, nullptr, 0);
    return at;
  }
  void close(size_t at) {
    const auto size = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &size, sizeof size);
  }
  std::string take() {
    const auto size = static_cast<uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &size, sizeof size);
    return std::move(bytes_);
  }

 private:
  void append(const void* data, size_t size) {
    if (size > 0) bytes_.append(static_cast<const char*>(data), size);
    bytes_.resize((bytes_.size() + 3) / 4 * 4);
  }
  std::string bytes_;
};

Result<void> talk(int socket, const std::string& message, const char* what) {
  if (::send(socket, message.data(), message.size(), 0) < 0) return fail_errno(what);
  alignas(nlmsghdr) char buffer[4096];
  const ssize_t n = ::recv(socket, buffer, sizeof buffer, 0);
  if (n < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr)))
    return fail(Code::kIo, std::string(what) + ": no answer");
  nlmsgerr answer{};
  std::memcpy(&answer, buffer + sizeof(nlmsghdr), sizeof answer);
  if (answer.error != 0) return fail_errno(what, -answer.error);
  return {};
}

std::string ingress(unsigned index) {
  tcmsg body{};
  body.tcm_family = AF_UNSPEC;
  body.tcm_ifindex = static_cast<int>(index);
  body.tcm_handle = TC_H_MAKE(TC_H_INGRESS, 0);
  body.tcm_parent = TC_H_INGRESS;
  Message message(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, body);
  message.text(TCA_KIND, "ingress");
  return message.take();
}

// Redirects what has `value` at the masked 32 bits `offset` behind the network header; mask 0:
// everything.
struct Match {
  uint16_t protocol;  // ETH_P_*
  uint16_t priority;
  uint32_t mask, value;  // network order
  int offset;
};
std::string redirect(unsigned from, unsigned to, const Match& match) {
  tcmsg body{};
  body.tcm_family = AF_UNSPEC;
  body.tcm_ifindex = static_cast<int>(from);
  body.tcm_parent = TC_H_MAKE(TC_H_INGRESS, 0);
  body.tcm_info = TC_H_MAKE(static_cast<uint32_t>(match.priority) << 16, htons(match.protocol));
  Message message(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, body);
  message.text(TCA_KIND, "u32");
  const size_t options = message.open(TCA_OPTIONS);
  tc_u32_sel selector{};
  selector.flags = TC_U32_TERMINAL;
  selector.nkeys = 1;
  const tc_u32_key key{match.mask, match.value, match.offset, 0};
  char both[sizeof selector + sizeof key];
  std::memcpy(both, &selector, sizeof selector);
  std::memcpy(both + sizeof selector, &key, sizeof key);
  message.attribute(TCA_U32_SEL, both, sizeof both);
  const size_t actions = message.open(TCA_U32_ACT);
  const size_t first = message.open(1);
  message.text(TCA_ACT_KIND, "mirred");
  const size_t parameters = message.open(TCA_ACT_OPTIONS);
  tc_mirred mirred{};
  mirred.action = TC_ACT_STOLEN;
  mirred.eaction = TCA_EGRESS_REDIR;
  mirred.ifindex = to;
  message.attribute(TCA_MIRRED_PARMS, &mirred, sizeof mirred);
  message.close(parameters);
  message.close(first);
  message.close(actions);
  message.close(options);
  return message.take();
}

// "Iface Destination Gateway …", hexadecimal, in network order as this machine reads it.
uint32_t default_gateway(const std::string& name) {
  const auto table = read_file("/proc/thread-self/net/route");
  if (!table) return 0;
  for (const auto& line : split(*table, '\n')) {
    char interface[IFNAMSIZ + 1] = {};
    unsigned destination = 1, gateway = 0;
    if (std::sscanf(line.c_str(), "%16s %x %x", interface, &destination, &gateway) != 3) continue;
    if (name == interface && destination == 0) return ntohl(gateway);
  }
  return 0;
}

}  // namespace

Result<InterfaceAddress> interface_address(const std::string& name) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("socket");
  InterfaceAddress found;
  ifreq request = request_for(name);
  if (::ioctl(socket.get(), SIOCGIFHWADDR, &request) < 0)
    return fail_errno(name + ": hardware address");
  char text[18];
  const auto* mac = reinterpret_cast<const unsigned char*>(request.ifr_hwaddr.sa_data);
  (void)std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
                      mac[3], mac[4], mac[5]);
  found.mac = text;
  const auto number = [&](unsigned long command, uint32_t* out) {
    ifreq ask = request_for(name);
    if (::ioctl(socket.get(), command, &ask) < 0) return false;
    sockaddr_in address{};
    std::memcpy(&address, &ask.ifr_addr, sizeof address);
    *out = ntohl(address.sin_addr.s_addr);
    return true;
  };
  uint32_t mask = 0;
  if (number(SIOCGIFADDR, &found.address) && number(SIOCGIFNETMASK, &mask))
    found.prefix = std::popcount(mask);
  found.gateway = default_gateway(name);
  return found;
}

Result<void> add_tap(const std::string& name, uint32_t owner) {
  GB_TRY(const auto tun, open_fd("/dev/net/tun", O_RDWR));
  ifreq request = request_for(name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (::ioctl(tun.get(), TUNSETIFF, &request) < 0) return fail_errno("make tap " + name);
  if (::ioctl(tun.get(), TUNSETOWNER, static_cast<unsigned long>(owner)) < 0)
    return fail_errno("owner of tap " + name);
  if (::ioctl(tun.get(), TUNSETPERSIST, 1ul) < 0) return fail_errno("keep tap " + name);
  GB_TRY(auto routes, RouteSocket::open());
  GB_TRY(const auto index, routes.index_of(name));
  return routes.set_up(index);
}

Result<void> join(const std::string& wire, const std::string& tap, uint32_t address) {
  const unsigned outer = ::if_nametoindex(wire.c_str()), inner = ::if_nametoindex(tap.c_str());
  if (outer == 0 || inner == 0)
    return fail(Code::kNotFound, "no interface " + (outer == 0 ? wire : tap));
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!socket) return fail_errno("netlink socket");
  constexpr uint16_t kAll = 3, kIp = 0x0800, kArp = 0x0806;
  constexpr int kSource = 12;  // of the IPv4 header
  for (unsigned index : {outer, inner})
    GB_TRYV(talk(socket.get(), ingress(index), "traffic control: ingress"));
  GB_TRYV(talk(socket.get(), redirect(outer, inner, {kAll, 1, 0, 0, 0}),
               "traffic control: to the machine"));
  GB_TRYV(talk(socket.get(), redirect(inner, outer, {kArp, 1, 0, 0, 0}), "traffic control: ARP"));
  return talk(socket.get(), redirect(inner, outer, {kIp, 2, 0xffffffff, htonl(address), kSource}),
              "traffic control: from the machine");
}

}  // namespace glovebox::sys
