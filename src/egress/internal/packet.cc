// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/packet.h"

#include <algorithm>

namespace glovebox::egress {
namespace {

constexpr uint16_t kIpv4 = 0x0800, kArp = 0x0806, kIpv6 = 0x86DD, kVlan = 0x8100, kQinQ = 0x88A8;
constexpr uint8_t kIcmp = 1, kIgmp = 2, kTcp = 6, kUdp = 17, kIcmp6 = 58, kHopByHop = 0;
constexpr uint8_t kEchoRequest = 8;
constexpr size_t kIpHeader = 20, kUdpHeader = 8, kIcmpHeader = 8, kIp6Header = 40;

uint8_t at8(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}
uint16_t at16(std::string_view bytes, size_t i) {
  return static_cast<uint16_t>(at8(bytes, i) << 8 | at8(bytes, i + 1));
}
policy::Address address_at(std::string_view bytes, size_t i) {
  return policy::address_v4(static_cast<uint32_t>(at16(bytes, i)) << 16 | at16(bytes, i + 2));
}
void put16(std::string& out, size_t value) {
  out += static_cast<char>(value >> 8);
  out += static_cast<char>(value);
}
void put_address(std::string& out, const policy::Address& address) {
  put16(out, address.v4() >> 16);
  put16(out, address.v4() & 0xFFFF);
}
void set16(std::string& bytes, size_t i, uint16_t value) {
  bytes[i] = static_cast<char>(value >> 8);
  bytes[i + 1] = static_cast<char>(value);
}

std::string protocol_label(uint8_t protocol) {
  switch (protocol) {
    case kIcmp:
      return "icmp";
    case kTcp:
      return "tcp";
    case kUdp:
      return "udp";
    case 41:
      return "ipv6 in ipv4";
    case 47:
      return "gre";
    case 50:
      return "esp";
    case 132:
      return "sctp";
    default:
      return "protocol " + std::to_string(protocol);
  }
}

void read_transport(std::string_view body, uint8_t protocol, Packet& out) {
  if (protocol == kTcp) {
    out.kind = PacketKind::kTcp;
    if (body.size() < 4) return;
    out.source_port = at16(body, 0);
    out.port = at16(body, 2);
  } else if (protocol == kUdp) {
    out.kind = PacketKind::kUdp;
    out.is_relayable = out.is_relayable && body.size() >= kUdpHeader &&
                       at16(body, 4) >= kUdpHeader && at16(body, 4) <= body.size();
    if (body.size() < 4) return;
    out.source_port = at16(body, 0);
    out.port = at16(body, 2);
    if (out.is_relayable) out.payload = body.substr(kUdpHeader, at16(body, 4) - kUdpHeader);
  } else if (protocol == kIcmp) {
    const bool is_echo =
        body.size() >= kIcmpHeader && at8(body, 0) == kEchoRequest && at8(body, 1) == 0;
    out.kind = is_echo ? PacketKind::kEcho : PacketKind::kIcmp;
    if (!is_echo) return;
    out.source_port = at16(body, 4);
    out.port = at16(body, 6);
    out.payload = body.substr(kIcmpHeader);
  }
}

std::optional<Packet> parse_ipv4(std::string_view bytes) {
  if (bytes.size() < kIpHeader || at8(bytes, 0) >> 4 != 4) return Packet{};
  Packet out;
  const size_t header = static_cast<size_t>(at8(bytes, 0) & 15) * 4, total = at16(bytes, 2);
  const uint8_t protocol = at8(bytes, 9);
  out.source = address_at(bytes, 12);
  out.destination = address_at(bytes, 16);
  out.label = protocol_label(protocol);
  if (protocol == kIgmp) return std::nullopt;
  if (header < kIpHeader || total < header || total > bytes.size()) return out;
  const bool is_fragment = (at16(bytes, 6) & 0x3FFF) != 0;
  if (is_fragment) {
    out.label = "fragment";
    return out;
  }
  out.is_relayable = header == kIpHeader;
  read_transport(bytes.substr(header, total - header), protocol, out);
  if (header > kIpHeader) out.label = "ip options";
  return out;
}

std::optional<Packet> parse_ipv6(std::string_view bytes) {
  Packet out;
  out.label = "ipv6";
  if (bytes.size() < kIp6Header) return out;
  for (auto* address : {&out.source, &out.destination}) address->is_v6 = true;
  for (size_t i = 0; i < 16; ++i) {
    out.source.bytes[i] = at8(bytes, 8 + i);
    out.destination.bytes[i] = at8(bytes, 24 + i);
  }
  const uint8_t next = at8(bytes, 6);
  // ff02::/16 with ICMPv6, plain or behind the router alert of a membership report: the sandbox's
  // kernel by itself.
  const bool is_group = at8(bytes, 24) == 0xFF && at8(bytes, 25) == 2;
  const size_t type = next == kHopByHop ? kIp6Header + 8 : kIp6Header;
  const bool is_housekeeping = (next == kIcmp6 || next == kHopByHop) && bytes.size() > type &&
                               at8(bytes, type) >= 130 && at8(bytes, type) <= 143;
  if (is_group && is_housekeeping) return std::nullopt;
  if ((next == kUdp || next == kTcp) && bytes.size() >= kIp6Header + 4) {
    out.source_port = at16(bytes, kIp6Header);
    out.port = at16(bytes, kIp6Header + 2);
  }
  return out;
}

std::string build_ip(uint8_t protocol, const policy::Address& source,
                     const policy::Address& destination, std::string_view body) {
  std::string out("\x45\0", 2);
  put16(out, kIpHeader + body.size());
  out += std::string("\0\0\x40\0\x40", 5);  // may not be fragmented, 64 hops
  out += static_cast<char>(protocol);
  put16(out, 0);
  put_address(out, source);
  put_address(out, destination);
  set16(out, 10, internet_checksum(out));
  return out.append(body);
}

}  // namespace

uint16_t internet_checksum(std::string_view bytes) {
  uint32_t sum = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) sum += at16(bytes, i);
  if (bytes.size() % 2 == 1) sum += static_cast<uint32_t>(at8(bytes, bytes.size() - 1)) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

std::optional<Packet> parse_packet(uint16_t ether_type, std::string_view bytes) {
  if (ether_type == kArp) return std::nullopt;
  if (ether_type == kIpv4) return parse_ipv4(bytes);
  if (ether_type == kIpv6) return parse_ipv6(bytes);
  Packet out;
  out.label = ether_type == kVlan || ether_type == kQinQ
                  ? "vlan"
                  : "ethernet type " + std::to_string(ether_type);
  return out;
}

std::string build_udp(const policy::Address& source, uint16_t source_port,
                      const policy::Address& destination, uint16_t port, std::string_view payload) {
  std::string body;
  put16(body, source_port);
  put16(body, port);
  put16(body, kUdpHeader + payload.size());
  put16(body, 0);
  body += payload;
  std::string pseudo;
  put_address(pseudo, source);
  put_address(pseudo, destination);
  put16(pseudo, kUdp);
  put16(pseudo, body.size());
  const uint16_t sum = internet_checksum(pseudo + body);
  set16(body, 6, sum == 0 ? 0xFFFF : sum);
  return build_ip(kUdp, source, destination, body);
}

std::string build_echo(uint8_t type, uint16_t identifier, uint16_t sequence,
                       std::string_view payload) {
  std::string out{static_cast<char>(type), '\0', '\0', '\0'};
  put16(out, identifier);
  put16(out, sequence);
  out += payload;
  set16(out, 2, internet_checksum(out));
  return out;
}

std::string build_icmp_packet(const policy::Address& source, const policy::Address& destination,
                              std::string_view message) {
  return build_ip(kIcmp, source, destination, message);
}

}  // namespace glovebox::egress
