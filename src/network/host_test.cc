// SPDX-License-Identifier: Apache-2.0
#include "network/host.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace glovebox::network {
namespace {

TEST(Host, ReadsResolvers) {
  EXPECT_EQ(parse_resolvers("# x\nnameserver 192.0.2.1\n  nameserver\t2001:db8::1\nsearch a.b\nnameserver fe80::1%eth0\nnameserver nonsense\n"),
            (std::vector<std::string>{"192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1]:53"}));
  EXPECT_TRUE(parse_resolvers("").empty());
}

TEST(Host, ReadsWherePackagesComeFrom) {
  EXPECT_EQ(parse_pip_index("[global]\nindex-url = https://example.com/simple/\ntimeout = 3\n"), "https://example.com/simple");
  EXPECT_EQ(parse_pip_index("[global]\nextra-index-url = https://example.com/simple/\n"), "");
  EXPECT_EQ(parse_pip_index("index-url = file:///srv\n"), "");
  EXPECT_EQ(parse_npm_registry("; x\nregistry=\"https://example.com/npm/\"\n"), "https://example.com/npm");
  EXPECT_EQ(parse_apt_archive("deb http://security.example.com/debian-security x main\ndeb [arch=amd64] http://example.com/debian/ x main\n"),
            "http://example.com/debian");
  EXPECT_EQ(parse_apt_archive("Types: deb\nURIs: https://example.com/debian\nSuites: x\n"), "https://example.com/debian");
  EXPECT_EQ(parse_apt_archive(""), "");
}

TEST(Host, KnowsItsOwnAddresses) {
  const auto addresses = own_addresses();
  EXPECT_TRUE(std::any_of(addresses.begin(), addresses.end(), [](const auto& a) { return a.text() == "127.0.0.1"; }));
}

}  // namespace
}  // namespace glovebox::network
