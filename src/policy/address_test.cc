// SPDX-License-Identifier: Apache-2.0
#include "policy/address.h"

#include <gtest/gtest.h>

namespace glovebox::policy {
namespace {

std::string range_of(std::string_view text) {
  const auto address = parse_address(text);
  if (!address) return "no address: " + std::string(text);
  return std::string(special_range(*address));
}

// The address before or behind; nullopt at the ends of all addresses.
std::optional<Address> step(Address address, bool up) {
  for (int i = address.is_v6 ? 15 : 3; i >= 0; --i) {
    uint8_t& byte = address.bytes[static_cast<size_t>(i)];
    up ? ++byte : --byte;
    if (byte != (up ? 0x00 : 0xff)) return address;
  }
  return std::nullopt;
}

TEST(Address, ReadsOnlyTheUsualForms) {
  struct Case {
    std::string_view text, canonical;  // "" when it is no address
  };
  const Case cases[] = {
      {"203.0.114.7", "203.0.114.7"},
      {"0.0.0.0", "0.0.0.0"},
      {"255.255.255.255", "255.255.255.255"},
      {"2A00:1450:0:0::5", "2a00:1450::5"},
      {"::", "::"},
      {"::ffff:8.8.8.8", "::ffff:8.8.8.8"},
      {"", ""},
      {"127.1", ""},
      {"0x7f.0.0.1", ""},
      {"0x7f000001", ""},
      {"2130706433", ""},
      {"0177.0.0.1", ""},
      {"127.0.0.01", ""},
      {"1.2.3.4.", ""},
      {"1.2.3.256", ""},
      {"1.2.3", ""},
      {" 1.2.3.4", ""},
      {"1.2.3.4 ", ""},
      {"fe80::1%eth0", ""},
      {"[::1]", ""},
      {"::ffff:1.2.3", ""},
      {"1:2:3:4:5:6:7:8:9", ""},
      {"12345::", ""},
      {std::string_view("1.2.3.4\0", 8), ""},
      {std::string_view("::1\0x", 5), ""},
  };
  for (const auto& c : cases) {
    const auto address = parse_address(c.text);
    EXPECT_EQ(address ? address->text() : "", c.canonical) << c.text;
  }
}

TEST(Address, KeepsVersion4AndItsMappedFormApart) {
  EXPECT_NE(*parse_address("8.8.8.8"), *parse_address("::ffff:8.8.8.8"));
  EXPECT_EQ(parse_address("1.2.3.4")->v4(), 0x01020304u);
  EXPECT_EQ(address_v4(0x01020304), *parse_address("1.2.3.4"));
}

TEST(Cidr, ReadsBlocksAndRefusesTheRest) {
  struct Case {
    std::string_view text, canonical;
  };
  const Case cases[] = {
      {"203.0.114.0/24", "203.0.114.0/24"},
      {"8.8.8.8", "8.8.8.8/32"},
      {"8.8.8.8/32", "8.8.8.8/32"},
      {"0.0.0.0/0", "0.0.0.0/0"},
      {"2a00::/6", ""},
      {"2a00::/16", "2a00::/16"},
      {"::/0", "::/0"},
      {"2a00::1", "2a00::1/128"},
      {"8.8.8.8/24", ""},
      {"8.8.8.128/24", ""},
      {"8.8.8.128/25", "8.8.8.128/25"},
      {"8.8.8.0/33", ""},
      {"::/129", ""},
      {"8.8.8.0/", ""},
      {"8.8.8.0/08", ""},
      {"8.8.8.0/-1", ""},
      {"8.8.8.0/+8", ""},
      {"8.8.8.0/8/8", ""},
      {"/8", ""},
      {"example.com/8", ""},
      {"8.8/16", ""},
      {"8.8.8.0/ 24", ""},
      {"8.8.8.0/1000000000000", ""},
  };
  for (const auto& c : cases) {
    const auto block = parse_cidr(c.text);
    EXPECT_EQ(block ? block->text() : "", c.canonical) << c.text;
    if (!block) EXPECT_EQ(block.error().code, Code::kInvalidArgument) << c.text;
  }
}

TEST(Cidr, ContainsItsFirstAndLastAddressAndNotTheirNeighbours) {
  struct Case {
    std::string_view block, first, last;
  };
  const Case cases[] = {
      {"8.8.8.0/24", "8.8.8.0", "8.8.8.255"},
      {"8.8.8.128/25", "8.8.8.128", "8.8.8.255"},
      {"8.8.8.8/31", "8.8.8.8", "8.8.8.9"},
      {"8.8.8.8/32", "8.8.8.8", "8.8.8.8"},
      {"8.0.0.0/5", "8.0.0.0", "15.255.255.255"},
      {"2a00::/15", "2a00::", "2a01:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
      {"2a00::8/125", "2a00::8", "2a00::f"},
  };
  for (const auto& c : cases) {
    const Cidr block = parse_cidr(c.block).value();
    const Address first = *parse_address(c.first), last = *parse_address(c.last);
    EXPECT_TRUE(block.contains(first)) << c.block;
    EXPECT_TRUE(block.contains(last)) << c.block;
    EXPECT_FALSE(block.contains(*step(first, false))) << c.block;
    EXPECT_FALSE(block.contains(*step(last, true))) << c.block;
  }
  EXPECT_TRUE(parse_cidr("0.0.0.0/0").value().contains(*parse_address("255.255.255.255")));
  EXPECT_FALSE(parse_cidr("0.0.0.0/0").value().contains(*parse_address("::")));
  EXPECT_FALSE(parse_cidr("::/0").value().contains(*parse_address("1.2.3.4")));
}

// Both ends of every block, and what lies directly outside.
TEST(SpecialRange, HasExactEdges) {
  struct Case {
    std::string_view first, last, rule, before, behind;  // rules; "-" where there is no address
  };
  const Case cases[] = {
      {"0.0.0.0", "0.255.255.255", "floor:unspecified", "-", ""},
      {"10.0.0.0", "10.255.255.255", "floor:private", "", ""},
      {"100.64.0.0", "100.127.255.255", "floor:cgnat", "", ""},
      {"100.100.100.200", "100.100.100.200", "floor:metadata", "floor:cgnat", "floor:cgnat"},
      {"127.0.0.0", "127.255.255.255", "floor:loopback", "", ""},
      {"168.63.129.16", "168.63.129.16", "floor:metadata", "", ""},
      {"169.254.0.0", "169.254.255.255", "floor:link_local", "", ""},
      {"169.254.0.23", "169.254.0.23", "floor:metadata", "floor:link_local", "floor:link_local"},
      {"169.254.42.42", "169.254.42.42", "floor:metadata", "floor:link_local", "floor:link_local"},
      {"169.254.169.254", "169.254.169.254", "floor:metadata", "floor:link_local",
       "floor:link_local"},
      {"169.254.170.2", "169.254.170.2", "floor:metadata", "floor:link_local", "floor:link_local"},
      {"169.254.170.23", "169.254.170.23", "floor:metadata", "floor:link_local",
       "floor:link_local"},
      {"172.16.0.0", "172.31.255.255", "floor:private", "", ""},
      {"192.0.0.0", "192.0.0.191", "floor:reserved", "", "floor:metadata"},
      {"192.0.0.192", "192.0.0.192", "floor:metadata", "floor:reserved", "floor:reserved"},
      {"192.0.0.193", "192.0.0.255", "floor:reserved", "floor:metadata", ""},
      {"192.0.2.0", "192.0.2.255", "floor:documentation", "", ""},
      {"192.88.99.0", "192.88.99.255", "floor:reserved", "", ""},
      {"192.168.0.0", "192.168.255.255", "floor:private", "", ""},
      {"198.18.0.0", "198.19.255.255", "floor:reserved", "", ""},
      {"198.51.100.0", "198.51.100.255", "floor:documentation", "", ""},
      {"203.0.113.0", "203.0.113.255", "floor:documentation", "", ""},
      {"224.0.0.0", "239.255.255.255", "floor:multicast", "", "floor:reserved"},
      {"240.0.0.0", "255.255.255.254", "floor:reserved", "floor:multicast", "floor:broadcast"},
      {"255.255.255.255", "255.255.255.255", "floor:broadcast", "floor:reserved", "-"},

      {"::", "::", "floor:unspecified", "-", "floor:loopback"},
      {"::1", "::1", "floor:loopback", "floor:unspecified", "floor:unspecified"},
      {"::1:0:0", "::fffe:ffff:ffff", "floor:reserved", "floor:broadcast", "floor:unspecified"},
      {"64:ff9b:0:0:0:1::", "64:ff9b::ffff:ffff:ffff:ffff:ffff", "floor:reserved",
       "floor:broadcast", "floor:unspecified"},
      {"64:ff9b:2::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:reserved",
       "floor:broadcast", ""},
      {"100::", "100::ffff:ffff:ffff:ffff", "floor:reserved", "floor:reserved", "floor:reserved"},
      {"2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:reserved", "floor:unspecified",
       ""},
      {"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "floor:documentation", "", ""},
      {"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:documentation", "", ""},
      {"4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:reserved", "", "floor:private"},
      {"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:private", "floor:reserved",
       "floor:reserved"},
      {"fd00:ec2::254", "fd00:ec2::254", "floor:metadata", "floor:private", "floor:private"},
      {"fd00:ec2::23", "fd00:ec2::23", "floor:metadata", "floor:private", "floor:private"},
      {"fd20:ce::254", "fd20:ce::254", "floor:metadata", "floor:private", "floor:private"},
      {"fd00:c1::a9fe:a9fe", "fd00:c1::a9fe:a9fe", "floor:metadata", "floor:private",
       "floor:private"},
      {"fd00:42::42", "fd00:42::42", "floor:metadata", "floor:private", "floor:private"},
      {"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:link_local", "floor:reserved",
       "floor:private"},
      {"fe80::a9fe:a9fe", "fe80::a9fe:a9fe", "floor:metadata", "floor:link_local",
       "floor:link_local"},
      {"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:private", "floor:link_local",
       "floor:multicast"},
      {"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "floor:multicast", "floor:private",
       "-"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(range_of(c.first), c.rule) << c.first;
    EXPECT_EQ(range_of(c.last), c.rule) << c.last;
    const auto before = step(*parse_address(c.first), false);
    const auto behind = step(*parse_address(c.last), true);
    EXPECT_EQ(before ? special_range(*before) : "-", c.before) << "before " << c.first;
    EXPECT_EQ(behind ? special_range(*behind) : "-", c.behind) << "behind " << c.last;
  }
}

TEST(SpecialRange, LeavesPublicAddressesAlone) {
  for (const std::string_view text :
       {"1.1.1.1", "8.8.8.8", "9.255.255.255", "20.0.0.1", "45.0.0.1", "100.63.255.255",
        "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "223.255.255.255",
        "2000::", "2001:200::", "2001:4860:4860::8888", "2003::", "2606:4700::1111", "3ffe::1"})
    EXPECT_EQ(range_of(text), "") << text;
}

TEST(SpecialRange, JudgesTranslatedAddressesByWhatIsInside) {
  struct Case {
    std::string_view text, rule;
  };
  const Case cases[] = {
      {"::ffff:127.0.0.1", "floor:loopback"},          // mapped
      {"::ffff:10.0.0.1", "floor:private"},            //
      {"::ffff:169.254.169.254", "floor:metadata"},    //
      {"::ffff:8.8.8.8", "floor:translated"},          //
      {"::ffff:0:127.0.0.1", "floor:loopback"},        // v4-translated
      {"::ffff:0:8.8.8.8", "floor:translated"},        //
      {"::127.0.0.1", "floor:loopback"},               // compatible
      {"::8.8.8.8", "floor:translated"},               //
      {"64:ff9b::169.254.169.254", "floor:metadata"},  // NAT64
      {"64:ff9b::192.168.1.1", "floor:private"},       //
      {"64:ff9b::8.8.8.8", "floor:translated"},        //
      {"64:ff9b:1::10.1.2.3", "floor:private"},        // NAT64, local use
      {"64:ff9b:1:ffff::8.8.8.8", "floor:translated"},
      {"2002:7f00:1::", "floor:loopback"},                         // 6to4 of 127.0.0.1
      {"2002:a9fe:a9fe::1", "floor:metadata"},                     //
      {"2002:c0a8:101::1", "floor:private"},                       //
      {"2002:808:808::1", "floor:translated"},                     //
      {"2001:0:4136:e378:8000:63bf:f5ff:fffe", "floor:private"},   // Teredo, client 10.0.0.1
      {"2001:0:4136:e378:8000:63bf:5601:5601", "floor:metadata"},  // client 169.254.169.254
      {"2001::1:2:f7f7:f7f7", "floor:translated"},                 // client 8.8.8.8
  };
  for (const auto& c : cases) EXPECT_EQ(range_of(c.text), c.rule) << c.text;
}

TEST(SpecialRange, OfABlockOnlyWhenAllOfItIsSpecial) {
  struct Case {
    std::string_view block;
    bool is_special;
  };
  const Case cases[] = {
      {"10.0.0.0/8", true},
      {"10.0.0.0/7", false},
      {"10.1.2.3/32", true},
      {"224.0.0.0/3", true},
      {"192.0.0.0/24", true},
      {"192.0.0.0/23", false},
      {"0.0.0.0/0", false},
      {"8.8.8.0/24", false},
      {"169.254.0.0/16", true},
      {"168.63.129.16", true},
      {"168.63.129.16/31", false},
      {"127.0.0.0/8", true},
      {"::/0", false},
      {"::/3", true},
      {"4000::/2", true},
      {"8000::/1", true},
      {"2000::/3", false},
      {"2002::/16", true},
      {"2002:808::/32", true},
      {"2001::/23", true},
      {"2001::/22", false},
      {"2a00::/16", false},
      {"::ffff:0:0/96", true},
      {"::ffff:808:808/128", true},
      {"fc00::/7", true},
      {"f000::/4", true},
      {"3fff::/20", true},
  };
  for (const auto& c : cases)
    EXPECT_EQ(!special_range(parse_cidr(c.block).value()).empty(), c.is_special) << c.block;
}

}  // namespace
}  // namespace glovebox::policy
