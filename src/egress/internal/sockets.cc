// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/sockets.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/icmp.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <vector>

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
  if (::setsockopt(fd.get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on) != 0)
    return fail_errno("IP_PKTINFO");
  const int bytes = 1 << 20;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  return fd;
}

// Ingress only; no ARP; no DNS queries; of TCP only what asks for a connection (its source may be
// forged), fragments and options. The data begins with the IP header (SOCK_DGRAM).
std::vector<sock_filter> observer_filter() {
  constexpr uint32_t kDrop = 0, kTake = 0xFFFF;
  const auto extension = [](int field) { return static_cast<uint32_t>(SKF_AD_OFF + field); };
  const auto load = [](uint16_t size, uint32_t at) {
    return sock_filter{static_cast<uint16_t>(BPF_LD | size | BPF_ABS), 0, 0, at};
  };
  const auto test = [](uint16_t op, uint32_t value, uint8_t yes, uint8_t no) {
    return sock_filter{static_cast<uint16_t>(BPF_JMP | op | BPF_K), yes, no, value};
  };
  const auto answer = [](uint32_t bytes) { return sock_filter{BPF_RET | BPF_K, 0, 0, bytes}; };
  // clang-format off: a line for each question
  return {
      load(BPF_W, extension(SKF_AD_PKTTYPE)), test(BPF_JEQ, PACKET_OUTGOING, 0, 1), answer(kDrop),
      load(BPF_W, extension(SKF_AD_VLAN_TAG_PRESENT)), test(BPF_JEQ, 0, 1, 0), answer(kTake),
      load(BPF_W, extension(SKF_AD_PROTOCOL)), test(BPF_JEQ, ETH_P_ARP, 0, 1), answer(kDrop),
      test(BPF_JEQ, ETH_P_IP, 1, 0), answer(kTake),
      load(BPF_B, 0), test(BPF_JEQ, 0x45, 1, 0), answer(kTake),           // IP options
      load(BPF_H, 6), test(BPF_JSET, 0x3FFF, 0, 1), answer(kTake),        // fragments
      load(BPF_B, 9), test(BPF_JEQ, IPPROTO_UDP, 0, 3),
      load(BPF_H, 22), test(BPF_JEQ, 53, 0, 1), answer(kDrop),
      load(BPF_B, 9), test(BPF_JEQ, IPPROTO_TCP, 1, 0), answer(kTake),
      load(BPF_B, 33), {BPF_ALU | BPF_AND | BPF_K, 0, 0, 0x12}, test(BPF_JEQ, 0x02, 0, 1), answer(kTake), answer(kDrop),
  };
  // clang-format on
}

Result<UniqueFd> open_packets() {
  // Without a protocol nothing arrives until the filter is in place.
  UniqueFd fd(::socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("packet socket");
  auto filter = observer_filter();
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
    return fail_errno("SO_ATTACH_FILTER");
  const int on = 1, bytes = 4 << 20;
  if (::setsockopt(fd.get(), SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) != 0)
    return fail_errno("PACKET_AUXDATA");
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  sockaddr_ll any{};
  any.sll_family = AF_PACKET;
  any.sll_protocol = htons(ETH_P_ALL);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    return fail_errno("bind of the packet socket");
  return fd;
}

Result<UniqueFd> open_inet(int type, int protocol) {
  UniqueFd fd(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  if (!fd) return fail_errno("socket");
  return fd;
}

// Gets echo replies and nothing else.
Result<UniqueFd> open_echo() {
  GB_TRY(auto fd, open_inet(SOCK_RAW, IPPROTO_ICMP));
  const icmp_filter filter{~(1U << ICMP_ECHOREPLY)};
  if (::setsockopt(fd.get(), SOL_RAW, ICMP_FILTER, &filter, sizeof filter) != 0)
    return fail_errno("ICMP_FILTER");
  return fd;
}

Result<RouterSockets> open_all(uint16_t tcp_port, uint16_t dns_port) {
  RouterSockets out;
  GB_TRY(out.tcp, open_listener(tcp_port));
  GB_TRY(out.dns_tcp, open_listener(dns_port));
  GB_TRY(out.dns_udp, open_dns(dns_port));
  GB_TRY(out.observed.packets, open_packets());
  GB_TRY(out.observed.raw, open_inet(SOCK_RAW, IPPROTO_RAW));
  GB_TRY(out.observed.lookup, open_inet(SOCK_DGRAM, 0));
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
  if (sockets) {
    GB_TRY(sockets->observed.echo, open_echo());
  }
  return sockets;
}

}  // namespace glovebox::egress
