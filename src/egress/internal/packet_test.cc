// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/packet.h"

#include <gtest/gtest.h>

namespace glovebox::egress {
namespace {

constexpr uint16_t kIpv4 = 0x0800;
const policy::Address kSandbox = *policy::parse_address("10.200.4.1"),
                      kHost = *policy::parse_address("45.10.0.10");

TEST(Packet, UdpIsReadAsItWasBuilt) {
  for (const std::string payload : {"", "x", "even"}) {
    const std::string bytes = build_udp(kHost, 7777, kSandbox, 40000, payload);
    EXPECT_EQ(internet_checksum(std::string_view(bytes).substr(0, 20)), 0);
    const auto packet = parse_packet(kIpv4, bytes);
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->kind, PacketKind::kUdp);
    EXPECT_TRUE(packet->is_relayable);
    EXPECT_EQ(packet->source, kHost);
    EXPECT_EQ(packet->destination, kSandbox);
    EXPECT_EQ(packet->source_port, 7777);
    EXPECT_EQ(packet->port, 40000);
    EXPECT_EQ(packet->payload, payload);
  }
}

TEST(Packet, EchoIsReadAsItWasBuilt) {
  const std::string bytes = build_icmp_packet(kSandbox, kHost, build_echo(8, 77, 3, "data"));
  const auto packet = parse_packet(kIpv4, bytes);  // its payload points into the bytes
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->kind, PacketKind::kEcho);
  EXPECT_EQ(packet->source_port, 77);
  EXPECT_EQ(packet->port, 3);
  EXPECT_EQ(packet->payload, "data");
  EXPECT_EQ(
      parse_packet(kIpv4, build_icmp_packet(kSandbox, kHost, build_echo(0, 77, 3, "data")))->kind,
      PacketKind::kIcmp);
}

TEST(Packet, FragmentsAndOptionsAreNeverRelayed) {
  std::string fragment = build_udp(kSandbox, 1, kHost, 2, "payload");
  fragment[6] = 0x20;
  EXPECT_EQ(parse_packet(kIpv4, fragment)->label, "fragment");
  EXPECT_FALSE(parse_packet(kIpv4, fragment)->is_relayable);
  std::string options = build_udp(kSandbox, 1, kHost, 2, "payload");
  options[0] = 0x46;
  EXPECT_EQ(parse_packet(kIpv4, options)->label, "ip options");
  EXPECT_FALSE(parse_packet(kIpv4, options)->is_relayable);
}

TEST(Packet, LengthsThatDisagreeAreNotRelayed) {
  const std::string good = build_udp(kSandbox, 1, kHost, 2, "payload");
  std::string longer = good;
  longer[25] = static_cast<char>(longer[25] + 1);  // the UDP length
  EXPECT_FALSE(parse_packet(kIpv4, longer)->is_relayable);
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_FALSE(parse_packet(kIpv4, good.substr(0, n))->is_relayable) << n;
}

TEST(Packet, NoiseOfTheKernelIsIgnored) {
  EXPECT_FALSE(parse_packet(0x0806, "arp"));
  std::string solicitation(48, '\0');
  solicitation[0] = 0x60;
  solicitation[6] = 58;
  solicitation[24] = '\xff';
  solicitation[25] = 2;
  solicitation[40] = static_cast<char>(133);
  EXPECT_FALSE(parse_packet(0x86DD, solicitation));
  solicitation[40] = static_cast<char>(128);  // an echo request is somebody's doing
  EXPECT_TRUE(parse_packet(0x86DD, solicitation));
}

}  // namespace
}  // namespace glovebox::egress
