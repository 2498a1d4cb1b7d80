// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/observer.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace glovebox::egress {
namespace {

constexpr int kTurn = 128;
constexpr size_t kMaxTold = 500;  // flows of one sandbox that are remembered
constexpr size_t kMaxInterfaces = 20'000;

policy::Verdict never(std::string rule, std::string reason) {
  return {false, std::move(rule), std::move(reason), "No rule can allow it."};
}

}  // namespace

PacketObserver::PacketObserver(Core& core, PacketSockets sockets)
    : core_(core),
      relay_(core, std::move(sockets.raw), std::move(sockets.echo)),
      packets_(std::make_shared<Watched>(core.executor, std::move(sockets.packets))),
      lookup_(std::move(sockets.lookup)) {}

Awaitable<void> PacketObserver::run() {
  char buffer[2048];
  for (int turn = 1;; ++turn) {
    Frame frame;
    if (receive(frame, buffer, sizeof buffer)) {
      take(frame);
    } else if (errno == EAGAIN) {
      if (!co_await packets_->readable()) co_return;
    }
    if (turn % kTurn == 0) co_await yield();
  }
}

Awaitable<void> PacketObserver::sweep() {
  for (int second = 1; co_await sleep_for(std::chrono::seconds(1)); ++second) {
    relay_.sweep(Clock::now());
    if (second % kFold.count() == 0) told_.clear();
  }
}

bool PacketObserver::receive(Frame& frame, char* buffer, size_t size) {
  sockaddr_ll from{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(tpacket_auxdata))];
  iovec data{buffer, size};
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(packets_->fd(), &message, MSG_DONTWAIT);
  if (n < 0) return false;
  frame = {from.sll_ifindex,
           ntohs(from.sll_protocol),
           from.sll_pkttype == PACKET_HOST,
           false,
           {buffer, static_cast<size_t>(n)}};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA) continue;
    tpacket_auxdata extra;
    std::memcpy(&extra, CMSG_DATA(header), sizeof extra);
    frame.has_vlan_tag = (extra.tp_status & TP_STATUS_VLAN_VALID) != 0;
  }
  return true;
}

std::shared_ptr<Link> PacketObserver::link_of(int interface) {
  const auto known = addresses_.find(interface);
  if (known != addresses_.end()) return core_.links.find(known->second);
  ifreq request{};
  request.ifr_ifindex = interface;
  if (::ioctl(lookup_.get(), SIOCGIFNAME, &request) != 0 ||
      ::ioctl(lookup_.get(), SIOCGIFADDR, &request) != 0)
    return nullptr;
  sockaddr_in address;
  std::memcpy(&address, &request.ifr_addr, sizeof address);
  const auto sandbox = policy::address_v4(ntohl(address.sin_addr.s_addr) ^ 1);
  if (addresses_.size() >= kMaxInterfaces) addresses_.clear();
  addresses_[interface] = sandbox;
  return core_.links.find(sandbox);
}

void PacketObserver::take(const Frame& frame) {
  const auto packet = parse_packet(frame.ether_type, frame.bytes);
  if (!packet) return;
  const auto link = link_of(frame.interface);
  if (link) judge(link, frame, *packet);
}

void PacketObserver::judge(const std::shared_ptr<Link>& link, const Frame& frame,
                           const Packet& packet) {
  if (frame.has_vlan_tag)
    return report(*link, packet, "other", never("link:vlan", "frames with a VLAN tag are dropped"));
  if (frame.ether_type == 0x86DD)
    return report(*link, packet, "other", never("protocol:ipv6", "there is no IPv6 on this link"));
  if (packet.source != link->address()) {
    return report(*link, packet, "other",
                  never("link:spoofed", "the packet's source " + packet.source.text() +
                                            " is not the link's address"));
  }
  policy::Attempt attempt;
  attempt.address = packet.destination;
  if (packet.kind == PacketKind::kUdp) {
    attempt.protocol = policy::Protocol::kUdp;
    attempt.port = packet.port;
  } else if (packet.kind == PacketKind::kEcho) {
    attempt.protocol = policy::Protocol::kIcmp;
  } else if (packet.kind == PacketKind::kTcp && packet.is_relayable) {
    return;  // a connection: the acceptor's business
  } else {
    return report(*link, packet, packet.kind == PacketKind::kIcmp ? "icmp" : "other",
                  never("protocol:" + packet.label,
                        "packets of this kind (" + packet.label + ") are dropped"));
  }
  const auto verdict = link->evaluator().decide(attempt);
  if (verdict.allowed && packet.is_relayable && frame.is_for_us &&
      !is_service_address(packet.destination)) {
    return relay_.pass(link, packet, verdict);
  }
  report(*link, packet, policy::protocol_name(attempt.protocol),
         verdict.allowed ? never("protocol:" + packet.label, "malformed packets are dropped")
                         : verdict);
}

void PacketObserver::report(Link& link, const Packet& packet, std::string_view protocol,
                            const policy::Verdict& verdict) {
  const uint16_t port = packet.kind == PacketKind::kEcho ? 0 : packet.port;
  auto& told = told_[link.address()];
  std::tuple flow{verdict.rule, packet.destination, port};
  if (told.contains(flow)) return;
  if (told.size() < kMaxTold) told.insert(std::move(flow));  // else the journal's rate bounds and counts them
  Event event;
  event.kind = "packet";
  event.flow = core_.journal.next_flow();
  event.protocol = protocol;
  event.address = packet.destination.text();
  event.port = port;
  set_verdict(event, verdict);
  link.record(event);
}

}  // namespace glovebox::egress
