// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/host.h"

#include <gtest/gtest.h>

#include "policy/egress.h"

namespace glovebox::policy {
namespace {

TEST(NormalHost, FoldsCaseAndOneDotAndRefusesTheRest) {
  const std::string label63(63, 'a'), label64(64, 'a');
  const std::string long253 = label63 + "." + label63 + "." + label63 + "." + std::string(61, 'b');
  struct Case {
    std::string text, host;
  };
  const Case cases[] = {
      {"example.com", "example.com"},
      {"EXAMPLE.Com", "example.com"},
      {"example.com.", "example.com"},
      {"localhost", "localhost"},
      {"_dmarc.a-b.example", "_dmarc.a-b.example"},
      {"xn--mnchen-3ya.example", "xn--mnchen-3ya.example"},
      {"1.example", "1.example"},
      {"4.3.2.1.in-addr.arpa", "4.3.2.1.in-addr.arpa"},
      {"0x.example", "0x.example"},
      {label63 + ".com", label63 + ".com"},
      {long253, long253},
      {long253 + ".", long253},
      {long253 + "b", ""},
      {label64 + ".com", ""},
      {"", ""},
      {".", ""},
      {"example.com..", ""},
      {".example.com", ""},
      {"a..b", ""},
      {"*.example.com", ""},
      {"exa mple.com", ""},
      {"example.com:443", ""},
      {"user@example.com", ""},
      {"example.com/", ""},
      {"m\xc3\xbcnchen.example", ""},
      {std::string("example.com\0.evil.test", 22), ""},
      {"1.2.3.4", ""},
      {"1.2.3.4.", ""},
      {"127.1", ""},
      {"2130706433", ""},
      {"0x7f000001", ""},
      {"0X7F.1", ""},
      {"0x", ""},
      {"a.0x1f", ""},
      {"0177.0.0.1", ""},
      {"example.123", ""},
      {"::1", ""},
      {"[::1]", ""},
  };
  for (const auto& c : cases) EXPECT_EQ(normal_host(c.text), c.host) << c.text;
}

TEST(HostMatches, WildcardStandsForOneOrMoreLabels) {
  struct Case {
    std::string_view pattern, host;
    bool matches;
  };
  const Case cases[] = {
      {"example.com", "example.com", true},
      {"example.com", "a.example.com", false},
      {"example.com", "badexample.com", false},
      {"example.com", "example.com.evil.test", false},
      {"*.example.com", "a.example.com", true},
      {"*.example.com", "a.b.example.com", true},
      {"*.example.com", "example.com", false},
      {"*.example.com", "badexample.com", false},
      {"*.example.com", ".example.com", false},
      {"*.example.com", "a.example.com.evil", false},
      {"*", "example.com", true},
      {"*", "", true},
      {"", "", false},
      {"example.com", "", false},
      {"*.example.com", "", false},
  };
  for (const auto& c : cases)
    EXPECT_EQ(host_matches(c.pattern, c.host), c.matches) << c.pattern << " " << c.host;
}

TEST(PathPattern, IsAPlainPathWithAtMostOneStarAtItsEnd) {
  for (const std::string_view text : {"/", "/*", "/v1", "/v1/", "/v1/*", "/a/b.c/~d", "/@s/p;v=1"})
    EXPECT_TRUE(internal::is_path_pattern(text)) << text;
  for (const std::string_view text :
       {"", "*", "v1", "/v1*", "/*/a", "//", "/a//b", "/a/../b", "/./a", "/a/..", "/a?b", "/a#b",
        "/a%20b", "/a b", "/a\\b", "/\xc3\xbc", "/v1/**", "/..;x/a"})
    EXPECT_FALSE(internal::is_path_pattern(text)) << text;
}

TEST(MatchPath, SaysWhenServersCouldDisagree) {
  using enum internal::PathMatch;
  struct Case {
    std::string_view pattern, path;
    internal::PathMatch match;
  };
  const Case cases[] = {
      {"/v1/items", "/v1/items", kYes},
      {"/v1/items", "/v1/items?id=../x", kYes},
      {"/v1/items", "/v1/items/", kNo},
      {"/v1/items", "/v1/item%73", kYes},
      {"/v1/items", "/V1/items", kNo},
      {"/v1/*", "/v1/", kYes},
      {"/v1/*", "/v1/a/b", kYes},
      {"/v1/*", "/v1", kNo},
      {"/v1/*", "/v10/a", kNo},
      {"/*", "/", kYes},
      {"/v1/*", "/v1/../admin", kUnclear},
      {"/v1/*", "/v1/%2e%2e/admin", kUnclear},
      {"/v1/*", "/v1/%2E./admin", kUnclear},
      {"/v1/*", "/v1/./a", kUnclear},
      {"/v1/*", "/v1//a", kUnclear},
      {"/v1/*", "//v1/a", kUnclear},
      {"/v1/*", "/v1/..;/admin", kUnclear},
      {"/v1/*", "/v1/a%2fb", kUnclear},
      {"/v1/*", "/v1/%252e%252e/admin", kUnclear},
      {"/v1/*", "/v1/..\\admin", kUnclear},
      {"/v1/*", "/v1/%5c", kUnclear},
      {"/v1/*", "/v1/a%00", kUnclear},
      {"/v1/*", "/v1/%zz", kUnclear},
      {"/v1/*", "/v1/a#b", kUnclear},
      {"/v1/*", "*", kUnclear},
      {"/v1/*", "", kUnclear},
      {"/v1/*", "http://x/v1/a", kUnclear},
  };
  for (const auto& c : cases)
    EXPECT_EQ(internal::match_path(c.pattern, c.path), c.match) << c.pattern << " " << c.path;
}

}  // namespace
}  // namespace glovebox::policy
