// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// IP addresses and the ranges no sandbox may ever reach, in one table. Numeric and applied after
// resolution, under every rule: what a name says does not matter, only where a connection would go.
namespace glovebox::policy {

// What is written as IPv6 stays IPv6: a v4-mapped address never turns into the IPv4 address inside,
// it is forbidden instead.
struct Address {
  bool is_v6 = false;
  std::array<uint8_t, 16> bytes{};  // network order; IPv4 uses the first four
  std::string text() const;
  uint32_t v4() const;  // host order; only of an IPv4 address
  friend bool operator==(const Address&, const Address&) = default;
  friend auto operator<=>(const Address&, const Address&) = default;
};
Address address_v4(uint32_t host_order);
// Dotted decimal with four parts and no leading zeros, or RFC 4291 text without a zone. Nothing
// else: "127.1", "0x7f.1" and "2130706433" are no addresses here (resolvers that think otherwise
// are not asked).
std::optional<Address> parse_address(std::string_view text);

struct Cidr {
  Address base;  // host bits are zero
  int prefix = 0;
  bool contains(const Address& address) const;
  std::string text() const;
  friend bool operator==(const Cidr&, const Cidr&) = default;
};
// "203.0.113.0/24" or a single address. kInvalidArgument when bits right of the prefix are set, or
// it is no address.
Result<Cidr> parse_cidr(std::string_view text);

// The name of the floor rule that forbids `address`: "floor:loopback", "floor:link_local",
// "floor:metadata" (all clouds'), "floor:private", "floor:cgnat", "floor:multicast",
// "floor:broadcast", "floor:reserved", "floor:documentation", "floor:unspecified". v4-mapped,
// v4-translated, v4-compatible, NAT64 (64:ff9b::/96, 64:ff9b:1::/48), 6to4 and Teredo addresses: by
// the IPv4 address inside, and "floor:translated" when that one would be public. Empty when it is
// an ordinary public address.
std::string_view special_range(const Address& address);
// The same for a block: not empty when every address in it is forbidden; one of the names that
// apply.
std::string_view special_range(const Cidr& block);

}  // namespace glovebox::policy
