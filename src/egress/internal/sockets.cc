// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

namespace glovebox::egress {
namespace {

constexpr int kBacklog = 4096;

Result<UniqueFd> open_bound(int type, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  const int on = 1;
  // A proxy that takes over from a dead one must not wait for the old connections to be forgotten.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
    return fail_errno("bind to port " + std::to_string(port) + " of the router namespace");
  }
  return fd;
}

Result<UniqueFd> open_listener(uint16_t port) {
  GB_TRY(auto fd, open_bound(SOCK_STREAM, port));
  if (::listen(fd.get(), kBacklog) != 0) return fail_errno("listen");
  return fd;
}

Result<UniqueFd> open_dns(uint16_t port) {
  GB_TRY(auto fd, open_bound(SOCK_DGRAM, port));
  const int on = 1;
  if (::setsockopt(fd.get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on) != 0) return fail_errno("IP_PKTINFO");
  const int bytes = 1 << 20;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  return fd;
}

Result<RouterSockets> open_all(uint16_t tcp_port, uint16_t dns_port) {
  RouterSockets out;
  GB_TRY(out.tcp, open_listener(tcp_port));
  GB_TRY(out.dns_tcp, open_listener(dns_port));
  GB_TRY(out.dns_udp, open_dns(dns_port));
  return out;
}

}  // namespace

Result<RouterSockets> open_router_sockets(int netns_fd, uint16_t tcp_port, uint16_t dns_port) {
  const UniqueFd own(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!own) return fail_errno("/proc/self/ns/net");
  if (::setns(netns_fd, CLONE_NEWNET) != 0) return fail_errno("setns to the router namespace");
  auto sockets = open_all(tcp_port, dns_port);
  // From here on everything that is opened has a way out; that is what this process is for.
  if (::setns(own.get(), CLONE_NEWNET) != 0) return fail_errno("setns back");
  return sockets;
}

}  // namespace glovebox::egress
