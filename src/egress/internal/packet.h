// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "policy/address.h"

// IP packets of a sandbox, without I/O: what the observer reads, and what the UDP and ICMP relays
// write.
namespace glovebox::egress {

enum class PacketKind { kTcp, kUdp, kEcho, kIcmp, kOther };

struct Packet {
  PacketKind kind = PacketKind::kOther;
  std::string label;  // "udp", "icmp", "sctp", "gre", "ipv6", "fragment", "ip options", "vlan",
                      // "protocol 99"
  policy::Address source, destination;
  uint16_t source_port = 0, port = 0;  // echo: the identifier, the sequence number
  std::string_view payload;            // of UDP and echo requests that are whole and plain
  bool is_relayable = false;           // no fragment, no options, lengths agree
};
// `bytes` from the IP header on; `ether_type` as the link layer says. Nothing for the noise that
// every kernel makes by itself (neighbour and router discovery, group membership).
std::optional<Packet> parse_packet(uint16_t ether_type, std::string_view bytes);

// An IPv4 packet with a UDP datagram, checksums included.
std::string build_udp(const policy::Address& source, uint16_t source_port,
                      const policy::Address& destination, uint16_t port, std::string_view payload);
// An ICMP message of the given type ("echo" request 8, reply 0), without the IP header.
std::string build_echo(uint8_t type, uint16_t identifier, uint16_t sequence,
                       std::string_view payload);
// An IPv4 packet around an ICMP message.
std::string build_icmp_packet(const policy::Address& source, const policy::Address& destination,
                              std::string_view message);

// What is left of the Internet checksum (RFC 1071): 0 when `bytes` holds a right one.
uint16_t internet_checksum(std::string_view bytes);

}  // namespace glovebox::egress
