// SPDX-License-Identifier: Apache-2.0
#include "policy/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace glovebox::policy {
namespace {

// What lies in a block: nothing but the block's own rule, or an IPv4 address at `offset` by which
// it is judged.
enum class Inside { kNothing, kV4, kInvertedV4 };

struct Special {
  Cidr block;
  std::string_view rule;
  Inside inside = Inside::kNothing;
  size_t offset = 0;
};

struct Row {
  const char* block;
  std::string_view rule;
  Inside inside = Inside::kNothing;
  size_t offset = 0;
};

// The first row that contains an address decides, so the single addresses of metadata services
// stand before the blocks they lie in. Source: IANA's registries of special-purpose addresses (RFC
// 6890 and later), and the clouds' own documentation.
constexpr Row kV4Rows[] = {
    {"169.254.169.254/32", "floor:metadata"},  // most clouds
    {"169.254.170.2/32", "floor:metadata"},    // container credentials
    {"169.254.170.23/32", "floor:metadata"},   // pod identity
    {"169.254.42.42/32", "floor:metadata"},
    {"169.254.0.23/32", "floor:metadata"},
    {"100.100.100.200/32", "floor:metadata"},
    {"168.63.129.16/32", "floor:metadata"},  // a public address that answers only inside its cloud
    {"192.0.0.192/32", "floor:metadata"},
    {"0.0.0.0/8", "floor:unspecified"},
    {"10.0.0.0/8", "floor:private"},
    {"100.64.0.0/10", "floor:cgnat"},
    {"127.0.0.0/8", "floor:loopback"},
    {"169.254.0.0/16", "floor:link_local"},
    {"172.16.0.0/12", "floor:private"},
    {"192.0.0.0/24", "floor:reserved"},
    {"192.0.2.0/24", "floor:documentation"},
    {"192.88.99.0/24", "floor:reserved"},  // 6to4 relays
    {"192.168.0.0/16", "floor:private"},
    {"198.18.0.0/15", "floor:reserved"},  // benchmarks
    {"198.51.100.0/24", "floor:documentation"},
    {"203.0.113.0/24", "floor:documentation"},
    {"224.0.0.0/4", "floor:multicast"},
    {"255.255.255.255/32", "floor:broadcast"},
    {"240.0.0.0/4", "floor:reserved"},
};

constexpr std::string_view kTranslated = "floor:translated";
constexpr Row kV6Rows[] = {
    {"::/128", "floor:unspecified"},
    {"::1/128", "floor:loopback"},
    {"fe80::a9fe:a9fe/128", "floor:metadata"},
    {"fd00:ec2::254/128", "floor:metadata"},
    {"fd00:ec2::23/128", "floor:metadata"},
    {"fd20:ce::254/128", "floor:metadata"},
    {"fd00:c1::a9fe:a9fe/128", "floor:metadata"},
    {"fd00:42::42/128", "floor:metadata"},
    {"::ffff:0:0/96", kTranslated, Inside::kV4, 12},      // v4-mapped
    {"::ffff:0:0:0/96", kTranslated, Inside::kV4, 12},    // v4-translated, RFC 2765
    {"::/96", kTranslated, Inside::kV4, 12},              // v4-compatible
    {"64:ff9b::/96", kTranslated, Inside::kV4, 12},       // NAT64
    {"64:ff9b:1::/48", kTranslated, Inside::kV4, 12},     // NAT64, local use
    {"2001::/32", kTranslated, Inside::kInvertedV4, 12},  // Teredo: the client's address
    {"2002::/16", kTranslated, Inside::kV4, 2},           // 6to4
    {"2001:db8::/32", "floor:documentation"},
    {"3fff::/20", "floor:documentation"},
    {"2001::/23", "floor:reserved"},  // protocol assignments
    {"fc00::/7", "floor:private"},
    {"fe80::/10", "floor:link_local"},
    {"fec0::/10", "floor:private"},  // site-local
    {"ff00::/8", "floor:multicast"},
    // What is outside 2000::/3 is no global unicast address.
    {"::/3", "floor:reserved"},
    {"4000::/2", "floor:reserved"},
    {"8000::/1", "floor:reserved"},
};

template <size_t N>
std::vector<Special> table(const Row (&rows)[N]) {
  std::vector<Special> out;
  for (const Row& row : rows) {
    auto block = parse_cidr(row.block);
    GB_ASSERT(block);
    out.push_back({*block, row.rule, row.inside, row.offset});
  }
  return out;
}

const std::vector<Special>& specials(bool is_v6) {
  static const std::vector<Special> v4 = table(kV4Rows), v6 = table(kV6Rows);
  return is_v6 ? v6 : v4;
}

int bits(const Address& address) {
  return address.is_v6 ? 128 : 32;
}

bool bit(const Address& address, int index) {
  return address.bytes[index / 8] & (0x80 >> (index % 8));
}

bool contains(const Cidr& outer, const Cidr& inner) {
  return outer.prefix <= inner.prefix && outer.contains(inner.base);
}

Address v4_inside(const Special& special, const Address& address) {
  Address out;
  for (size_t i = 0; i < 4; ++i) {
    const uint8_t byte = address.bytes[special.offset + i];
    out.bytes[i] = special.inside == Inside::kInvertedV4 ? byte ^ 0xff : byte;
  }
  return out;
}

// The upper half of a block that is larger than one address.
Cidr upper_half(const Cidr& block) {
  Cidr out{block.base, block.prefix + 1};
  out.base.bytes[block.prefix / 8] |= 0x80 >> (block.prefix % 8);
  return out;
}

std::optional<int> parse_prefix(std::string_view text, int max) {
  if (text.empty() || text.size() > 3 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  if (value > max) return std::nullopt;
  return value;
}

}  // namespace

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN];
  ::inet_ntop(is_v6 ? AF_INET6 : AF_INET, bytes.data(), buffer, sizeof buffer);
  return buffer;
}

uint32_t Address::v4() const {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

Address address_v4(uint32_t host_order) {
  Address out;
  for (int i = 0; i < 4; ++i) out.bytes[i] = static_cast<uint8_t>(host_order >> (24 - 8 * i));
  return out;
}

std::optional<Address> parse_address(std::string_view text) {
  if (text.size() >= INET6_ADDRSTRLEN || text.find('\0') != text.npos) return std::nullopt;
  const std::string copy(text);
  Address out;
  out.is_v6 = text.find(':') != text.npos;
  if (::inet_pton(out.is_v6 ? AF_INET6 : AF_INET, copy.c_str(), out.bytes.data()) != 1)
    return std::nullopt;
  return out;
}

bool Cidr::contains(const Address& address) const {
  if (address.is_v6 != base.is_v6) return false;
  const int whole = prefix / 8;
  if (std::memcmp(address.bytes.data(), base.bytes.data(), whole) != 0) return false;
  const int rest = prefix % 8;
  return rest == 0 || ((address.bytes[whole] ^ base.bytes[whole]) & (0xff00 >> rest) & 0xff) == 0;
}

std::string Cidr::text() const {
  return base.text() + "/" + std::to_string(prefix);
}

Result<Cidr> parse_cidr(std::string_view text) {
  const size_t slash = text.find('/');
  const auto base = parse_address(text.substr(0, slash));
  if (!base)
    return fail(Code::kInvalidArgument, "must be an IP address, or a block such as 203.0.113.0/24");
  Cidr out{*base, bits(*base)};
  if (slash == text.npos) return out;
  const auto prefix = parse_prefix(text.substr(slash + 1), out.prefix);
  if (!prefix)
    return fail(Code::kInvalidArgument,
                "the prefix must be a number from 0 to " + std::to_string(out.prefix));
  out.prefix = *prefix;
  for (int i = out.prefix; i < bits(*base); ++i) {
    if (bit(*base, i))
      return fail(Code::kInvalidArgument, "has bits set to the right of its prefix");
  }
  return out;
}

std::string_view special_range(const Address& address) {
  for (const Special& special : specials(address.is_v6)) {
    if (!special.block.contains(address)) continue;
    if (special.inside == Inside::kNothing) return special.rule;
    const std::string_view inside = special_range(v4_inside(special, address));
    return inside.empty() ? special.rule : inside;
  }
  return {};
}

std::string_view special_range(const Cidr& block) {
  bool overlaps = false;
  for (const Special& special : specials(block.base.is_v6)) {
    if (contains(special.block, block)) return special.rule;
    overlaps = overlaps || contains(block, special.block);
  }
  if (!overlaps) return {};
  // Halves until each is wholly inside or outside: at most 128 deep, and only along the edges of
  // the table's rows.
  if (special_range(upper_half(block)).empty()) return {};
  return special_range(Cidr{block.base, block.prefix + 1});
}

}  // namespace glovebox::policy
