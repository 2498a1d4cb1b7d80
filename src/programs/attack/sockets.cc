// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "programs/attack/attack.h"

// B06, B07: sockets of the host and of other sandboxes.
namespace glovebox::attack {
namespace {

constexpr int kConnectMilliseconds = 2000;

// 0, or the errno of connecting within a short time.
int connect_within(int fd, const sockaddr* address, socklen_t size) {
  if (fd < 0) return errno;
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  int error = ::connect(fd, address, size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd wait{fd, POLLOUT, 0};
    socklen_t length = sizeof error;
    if (::poll(&wait, 1, kConnectMilliseconds) == 0) {
      error = ETIMEDOUT;
    } else {
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  ::close(fd);
  return error;
}

int connect_unix(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, name.data(), name.size());
  const bool is_abstract = name[0] == '@';
  if (is_abstract) address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + name.size() +
                                           (is_abstract ? 0 : 1));
  for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
    const int error = connect_within(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0),
                                     reinterpret_cast<sockaddr*>(&address), size);
    if (error != EPROTOTYPE) return error;
  }
  return EPROTOTYPE;
}

int connect_tcp(const std::string& where) {
  const size_t colon = where.rfind(':');
  const auto port = static_cast<uint16_t>(std::atoi(where.c_str() + colon + 1));
  const std::string host = where.substr(0, colon);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    return connect_within(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                          reinterpret_cast<sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) return EINVAL;
  return connect_within(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0),
                        reinterpret_cast<sockaddr*>(&v6), sizeof v6);
}

Outcome connect_known_sockets(const Facts&) {
  Tally tally;
  for (const char* path :
       {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
        "/run/crio/crio.sock", "/run/podman/podman.sock", "/run/systemd/private",
        "/run/systemd/notify", "/run/systemd/journal/socket", "/run/dbus/system_bus_socket",
        "/run/snapd.socket", "/run/libvirt/libvirt-sock", "/run/udev/control",
        "/var/run/glovebox.sock", "/run/glovebox/glovebox.sock", "/dev/log"}) {
    const int error = connect_unix(path);
    error == 0 ? tally.succeed(std::string("connected to ") + path, false) : tally.refuse(error);
  }
  return tally.outcome("");
}

// Those that the host's side has seen on the host, its own among them.
Outcome connect_host_sockets(const Facts& facts) {
  Tally tally;
  for (const auto& name : facts.unix_sockets) {
    const int error = connect_unix(name);
    error == 0 ? tally.succeed("connected to " + name, false) : tally.refuse(error);
  }
  return facts.unix_sockets.empty() ? not_applicable("the host told of no socket")
                                    : tally.outcome("");
}

// Sockets in the file system or in /proc/net/unix that somebody else serves.
Outcome find_sockets(const Facts&) {
  Tally tally;
  for (const char* directory : {"/run", "/var/run", "/tmp", "/dev", "/", "/.glovebox"}) {
    for (const auto& name : list_directory(directory)) {
      const std::string path = std::string(directory) + "/" + name;
      struct stat status{};
      if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
      const int error = connect_unix(path);
      error == 0 ? tally.succeed("a socket answers at " + path, false) : tally.refuse(error);
    }
  }
  const std::string table = read_file("/proc/net/unix");
  for (size_t at = table.find('@'); at != std::string::npos; at = table.find('@', at + 1)) {
    const std::string name = table.substr(at, table.find('\n', at) - at);
    const int error = connect_unix(name);
    error == 0 ? tally.succeed("a socket answers at " + name, false) : tally.refuse(error);
  }
  return tally.outcome("no socket to be found");
}

// Families that lead to the host's kernel, its devices or a hypervisor rather than to a network.
Outcome open_other_families(const Facts& facts) {
  Tally tally;
  struct {
    const char* name;
    int family, type, protocol;
  } const kinds[] = {{"packet", AF_PACKET, SOCK_RAW, 0x0300},
                     {"raw IP", AF_INET, SOCK_RAW, IPPROTO_RAW},
                     {"kernel crypto", AF_ALG, SOCK_SEQPACKET, 0},
                     {"vsock", AF_VSOCK, SOCK_STREAM, 0},
                     {"uevents", AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT},
                     {"audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT},
                     {"netfilter", AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER},
                     {"xdp", 44, SOCK_RAW, 0},
                     {"bluetooth", AF_BLUETOOTH, SOCK_RAW, 1},
                     {"tipc", AF_TIPC, SOCK_RDM, 0}};
  for (const auto& kind : kinds) {
    const int fd = ::socket(kind.family, kind.type | SOCK_CLOEXEC, kind.protocol);
    if (fd < 0) {
      tally.refuse(errno);
      continue;
    }
    ::close(fd);
    tally.succeed(std::string(kind.name) + " socket of " +
                      (is_own_kernel(facts) ? "the sandbox's own kernel" : "the host's kernel"),
                  is_own_kernel(facts));
  }
  return tally.outcome("");
}

Outcome connect_hypervisor(const Facts&) {
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_HOST;
  address.svm_port = 1024;
  const int fd = ::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return refused("socket: " + error_name(errno));
  const int error = connect_within(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  if (error == 0 || error == ECONNRESET || error == ETIMEDOUT)
    return got_through("the hypervisor's side was reached: " + error_name(error));
  return refused("connect: " + error_name(error));
}

// Every one of the addresses has a listener of the host's side behind it.
Outcome connect_host(const Facts& facts) {
  Tally tally;
  for (const auto& where : facts.tcp) {
    const int error = connect_tcp(where);
    error == 0 ? tally.succeed("connected to " + where, false) : tally.refuse(error);
  }
  return facts.tcp.empty() ? not_applicable("the host told of no address") : tally.outcome("");
}

// Without a route nothing leaves: an address that times out or is refused by somebody was on a
// network.
Outcome connect_beyond(const Facts&) {
  Tally tally;
  for (const char* where : {"169.254.169.254:80", "10.0.0.1:80", "172.17.0.1:80", "192.168.0.1:80",
                            "192.0.2.1:80", "[fe80::1]:80", "2001:db8::1:80"}) {
    std::string plain = where;
    if (plain[0] == '[')
      plain = plain.substr(1, plain.find(']') - 1) + plain.substr(plain.find(']') + 1);
    const int error = connect_tcp(plain);
    const bool is_unreachable = error == ENETUNREACH || error == EHOSTUNREACH ||
                                error == EADDRNOTAVAIL || error == EINVAL || error == EPERM ||
                                error == EACCES || error == EAFNOSUPPORT;
    is_unreachable ? tally.refuse(error)
                   : tally.succeed(std::string("there is a way to ") + where + ": " +
                                       (error == 0 ? "connected" : error_name(error)),
                                   false);
  }
  return tally.outcome("");
}

// 0 when packets can be given to the interface: it is up, or can be brought up. Else what refused.
int use_interface(const std::string& name) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  int error = fd < 0 || ::ioctl(fd, SIOCGIFFLAGS, &request) < 0 ? errno : 0;
  if (error == 0 && (request.ifr_flags & IFF_UP) == 0) {
    request.ifr_flags |= IFF_UP;
    error = ::ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? errno : 0;
  }
  if (fd >= 0) ::close(fd);
  return error;
}

Outcome list_interfaces(const Facts&) {
  Tally tally;
  const std::string table = read_file("/proc/net/dev");
  for (size_t at = 0; at < table.size();) {
    const size_t end = std::min(table.find('\n', at), table.size());
    std::string line = table.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    line = line.substr(0, colon);
    line.erase(0, line.find_first_not_of(' '));
    if (line == "lo") continue;
    // A machine's card without a network is there, but down, and stays so.
    const int error = use_interface(line);
    error == 0 ? tally.succeed("there is an interface " + line, false) : tally.refuse(error);
  }
  const std::string routes = read_file("/proc/net/route");
  const size_t first = routes.find('\n');
  if (first != std::string::npos && first + 1 < routes.size() &&
      routes.compare(first + 1, 3, "lo\t") != 0) {
    tally.succeed("there is a route: " + printable(routes.substr(first + 1), 60), false);
  }
  return table.empty() ? Outcome{Verdict::kUndecided, "/proc/net/dev cannot be read"}
                       : tally.outcome("only the loopback interface, and no route");
}

}  // namespace

std::vector<Attempt> socket_attempts() {
  return {{"B06", "known_sockets", connect_known_sockets},
          {"B06", "host_sockets", connect_host_sockets},
          {"B06", "find_sockets", find_sockets},
          {"B06", "other_socket_families", open_other_families},
          {"B06", "hypervisor_socket", connect_hypervisor},
          {"B07", "connect_host", connect_host},
          {"B07", "connect_beyond", connect_beyond},
          {"B07", "list_interfaces", list_interfaces}};
}

}  // namespace glovebox::attack
