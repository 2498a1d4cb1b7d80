// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/versions.h"

#include <gtest/gtest.h>

#include "policy/internal/pep440.h"
#include "policy/internal/semver.h"

namespace glovebox::policy::internal {
namespace {

// The example of PEP 440's summary, and the spellings it permits.
TEST(Pep440, OrdersVersions) {
  const std::string_view ascending[] = {"1.0.dev456",
                                        "1.0a1",
                                        "1.0a2.dev456",
                                        "1.0a12.dev456",
                                        "1.0a12",
                                        "1.0b1.dev456",
                                        "1.0b2",
                                        "1.0b2.post345.dev456",
                                        "1.0b2.post345",
                                        "1.0rc1.dev456",
                                        "1.0rc1",
                                        "1.0",
                                        "1.0+abc.5",
                                        "1.0+abc.7",
                                        "1.0+5",
                                        "1.0.post456.dev34",
                                        "1.0.post456",
                                        "1.1.dev1",
                                        "1.1",
                                        "1.10",
                                        "20240101123456789012345678901",
                                        "1!0.1"};
  for (size_t i = 0; i < std::size(ascending); ++i) {
    for (size_t j = 0; j < std::size(ascending); ++j) {
      const auto a = pep440::parse(ascending[i]), b = pep440::parse(ascending[j]);
      ASSERT_TRUE(a && b) << ascending[i] << " " << ascending[j];
      EXPECT_TRUE(pep440::compare(*a, *b) == (i <=> j)) << ascending[i] << " " << ascending[j];
    }
  }
}

TEST(Pep440, ReadsEverySpellingOfAVersion) {
  const std::pair<std::string_view, std::string_view> same[] = {{"v1.0", "1"},
                                                                {"1.0.0", "1"},
                                                                {"01.00", "1"},
                                                                {"1.0alpha", "1.0a0"},
                                                                {"1.0-ALPHA.1", "1a1"},
                                                                {"1.0.beta_2", "1b2"},
                                                                {"1.0c1", "1.0rc1"},
                                                                {"1.0pre1", "1.0rc1"},
                                                                {"1.0-preview-1", "1rc1"},
                                                                {"1.0-1", "1.0.post1"},
                                                                {"1.0rev1", "1.0.post1"},
                                                                {"1.0-r1", "1.0.post1"},
                                                                {"1.0dev", "1.0.dev0"},
                                                                {"0!1.0", "1.0"},
                                                                {" 1.0 ", "1.0"},
                                                                {"1.0+A-b_1", "1.0+a.b.1"}};
  for (const auto& [a, b] : same) {
    const auto x = pep440::parse(a), y = pep440::parse(b);
    ASSERT_TRUE(x && y) << a;
    EXPECT_TRUE(pep440::compare(*x, *y) == 0) << a << " " << b;
  }
  for (const std::string_view text : {"", "a", "1.", ".1", "1..0", "1.0x", "1.0+", "1.0+a+b", "1!",
                                      "1 .0", "1.0a1b1", "1.0.dev1.post1", "latest", "1.0-"})
    EXPECT_FALSE(is_version(Registry::kPypi, text)) << text;
}

struct RangeCase {
  std::string_view range, version;
  bool matches;
};

TEST(Pep440, MatchesSpecifiers) {
  const RangeCase cases[] = {
      {"==1.0", "1.0.0", true},
      {"==1.0", "1.0+local", true},
      {"==1.0+a", "1.0", false},
      {"==1.0+a", "1.0+A", true},
      {"==1.0", "1.0.post1", false},
      {"!=1.0", "1.0.0", false},
      {"==1.1.*", "1.1", true},
      {"==1.1.*", "1.1.7", true},
      {"==1.1.*", "1.1a1", true},
      {"==1.1.*", "1.1.post1", true},
      {"==1.1.*", "1.10", false},
      {"==1.0.0.*", "1", true},
      {"==1.*", "1!1.0", false},
      {"==1!1.*", "1!1.5", true},
      {"!=1.1.*", "1.1.7", false},
      {"!=1.1.*", "1.2", true},
      {">=1.0", "1.0a1", false},
      {">=1.0", "2.0a1", true},
      {">=1.0", "1.0+x", true},
      {"<=1.0", "1.0+x", true},
      {"<=1.0", "1.0.post1", false},
      {"<2.0", "2.0a1", false},
      {"<2.0", "1.9", true},
      {"<2.0a2", "2.0a1", true},
      {"<2.0", "2.0.dev1", false},
      {"<2.0.post2", "2.0.post1", true},
      {"<2.0.post2", "2.0.post2.dev1", false},
      {"<2.0.post2", "2.0a1", true},
      {">1.0", "1.0.post1", false},
      {">1.0", "1.0+x", false},
      {">1.0", "1.0.1", true},
      {">1.0.post1", "1.0.post2", true},
      {">1.0a1", "1.0.post1", true},
      {">1.0a1", "1.0a1.post1", false},
      {"~=2.2", "2.3", true},
      {"~=2.2", "2.1", false},
      {"~=2.2", "3.0", false},
      {"~=2.2.0", "2.3", false},
      {"~=2.2.0", "2.2.9", true},
      {"~=2.2.post3", "2.3", true},
      {"~=2.2a1", "2.2", true},
      {"~=1!1.2", "1.5", false},
      {">=1,<2", "1.5", true},
      {">=1,<2", "2.0", false},
      {">= 1 , != 1.5", "1.5", false},
      {"===1.0", "1.0", true},
      {"===1.0", "1.0.0", false},
      {"===FooBar", "foobar", true},
      {">=1", "nonsense", false},
      {"==2024.1", "2024.01", true},
      {"<1!0", "999", true},
  };
  for (const auto& c : cases)
    EXPECT_EQ(version_matches(Registry::kPypi, c.range, c.version), c.matches)
        << c.range << " " << c.version;
  for (const std::string_view text :
       {"", "1.0", "=1.0", "~=1", "~=1.0.*", ">=1.0.*", "<1+x", "==1.0a1.*", "==1.0.*+x", ">=1,",
        ",", "=>1", "^1.0", "== 1.0 .*", "===", "===a b", "@1"})
    EXPECT_FALSE(is_version_range(Registry::kPypi, text)) << text;
}

TEST(Semver, OrdersVersions) {
  const std::string_view ascending[] = {"0.0.0-0",       "0.0.0",
                                        "1.0.0-1",       "1.0.0-2",
                                        "1.0.0-10",      "1.0.0-alpha",
                                        "1.0.0-alpha.1", "1.0.0-alpha.beta",
                                        "1.0.0-beta.2",  "1.0.0-beta.11",
                                        "1.0.0-rc.1",    "1.0.0",
                                        "1.0.1",         "1.2.0",
                                        "1.10.0",        "2.0.0",
                                        "10.0.0",        "9007199254740991.0.0"};
  for (size_t i = 0; i < std::size(ascending); ++i) {
    for (size_t j = 0; j < std::size(ascending); ++j) {
      const auto a = semver::parse(ascending[i]), b = semver::parse(ascending[j]);
      ASSERT_TRUE(a && b) << ascending[i] << " " << ascending[j];
      EXPECT_TRUE(semver::compare(*a, *b) == (i <=> j)) << ascending[i] << " " << ascending[j];
    }
  }
  EXPECT_TRUE(is_version(Registry::kNpm, "1.0.0+build.01"));
  for (const std::string_view text :
       {"", "1", "1.0", "1.0.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+", "a.b.c",
        "1.0.x", "9007199254740992.0.0", "99999999999999999999.0.0", "=1.0.0"})
    EXPECT_FALSE(is_version(Registry::kNpm, text)) << text;
}

TEST(Semver, MatchesRangesAsNpmDoes) {
  const RangeCase cases[] = {
      {"1.2.3", "1.2.3", true},
      {"=1.2.3", "1.2.3+b", true},
      {"v1.2.3", "1.2.3", true},
      {"^1.2.3", "1.9.0", true},
      {"^1.2.3", "2.0.0", false},
      {"^1.2.3", "1.2.2", false},
      {"^0.2.3", "0.2.9", true},
      {"^0.2.3", "0.3.0", false},
      {"^0.0.3", "0.0.3", true},
      {"^0.0.3", "0.0.4", false},
      {"^0.0", "0.0.9", true},
      {"^0.x", "0.9.0", true},
      {"^1.x", "1.0.0", true},
      {"~1.2.3", "1.2.9", true},
      {"~1.2.3", "1.3.0", false},
      {"~1", "1.9.9", true},
      {"~>1.2", "1.2.0", true},
      {"~ 1.2", "1.2.5", true},
      {"1.x", "1.5.0", true},
      {"1.2.X", "1.2.5", true},
      {"1.2.*", "1.3.0", false},
      {"*", "5.0.0", true},
      {"x", "5.0.0", true},
      {"1", "1.9.9", true},
      {">1.2", "1.2.9", false},
      {">1.2", "1.3.0", true},
      {">=1.2", "1.2.0", true},
      {"<=1.2", "1.2.9", true},
      {"<=1.2", "1.3.0", false},
      {"<1.2", "1.1.9", true},
      {">1", "1.9.9", false},
      {"<=1", "1.9.9", true},
      {"<*", "1.0.0", false},
      {">=*", "1.0.0", true},
      {"1.2.3 - 2.3.4", "2.3.4", true},
      {"1.2.3 - 2.3.4", "2.3.5", false},
      {"1.2 - 2.3", "2.3.9", true},
      {"1.2 - 2", "2.9.9", true},
      {"1.2 - 2", "1.1.9", false},
      {"* - 2", "0.0.1", true},
      {"1 - *", "9.0.0", true},
      {">=1 <2", "1.5.0", true},
      {">= 1.0.0 < 2.0.0", "2.0.0", false},
      {"^1 || ^3", "3.1.0", true},
      {"^1 || ^3", "2.1.0", false},
      {"^1||", "9.0.0", true},
      {"^1.2.3-beta.2", "1.2.3-beta.4", true},
      {"^1.2.3-beta.2", "1.2.3-beta.1", false},
      {"^1.2.3-beta.2", "1.2.4-beta.4", false},
      {"^1.2.3-beta.2", "1.2.3", true},
      {"^1.2.3", "1.3.0-beta", false},
      {"*", "1.0.0-beta", false},
      {">=1.0.0-0", "1.0.0-beta", true},
      {"<2.0.0", "2.0.0-beta", false},
      {">1.0.0-alpha", "1.0.0-beta", true},
      {"1.2.x", "1.2.3-rc.1", false},
      {"* || 1.0.0-beta", "1.0.0-beta", false},
      {"latest", "1.0.0", false},
      {"^1", "nonsense", false},
  };
  for (const auto& c : cases)
    EXPECT_EQ(version_matches(Registry::kNpm, c.range, c.version), c.matches)
        << c.range << " " << c.version;
  for (const std::string_view text :
       {"latest", "1.2.3.4", ">", "^", "x.1", "1.x.3", ">=", "1.2.3-", "git+ssh://x", "a - b",
        "^1 |", "> > 1", "1 - 2 3", "^01.2.3", "==="})
    EXPECT_FALSE(is_version_range(Registry::kNpm, text)) << text;
}

// A rule that forbids takes pre-releases in, or "evil@<2" would let 2.0.0-beta and 1.5.0-beta
// through.
TEST(Semver, TakesPrereleasesInWhenAsked) {
  const RangeCase cases[] = {{"^1.0.0", "1.5.0-beta", true},
                             {"<2", "1.5.0-beta", true},
                             {"*", "0.0.0-0", true},
                             {"1.x", "1.0.0-rc.1", true},
                             {"^1.0.0", "2.0.0-beta", false},
                             {"1 - 2", "2.9.9-beta", true},
                             {"1.0.0 - 2.0.0", "1.0.0-rc.1", true},
                             {">1.2", "1.3.0-alpha", true},
                             {"~1.2", "1.2.0-alpha", true},
                             {"1.5.0", "1.5.0-beta", false}};
  for (const auto& c : cases)
    EXPECT_EQ(matches(Registry::kNpm, c.range, c.version, Prereleases::kInRange), c.matches)
        << c.range << " " << c.version;
}

TEST(Debian, ComparesExactlyOrByPrefix) {
  const RangeCase cases[] = {{"7.88.1-10", "7.88.1-10", true},
                             {"7.88.1-10", "7.88.1-10+deb12u1", false},
                             {"7.88.*", "7.88.1-10+deb12u1", true},
                             {"7.88.*", "7.880", false},
                             {"1:2.3~rc1-1", "1:2.3~rc1-1", true},
                             {"*", "1", true},
                             {"1*", "", false}};
  for (const auto& c : cases)
    EXPECT_EQ(version_matches(Registry::kDebian, c.range, c.version), c.matches)
        << c.range << " " << c.version;
  for (const std::string_view text : {"", ">=1", "1*2", "1 2", "1/2", "**"})
    EXPECT_FALSE(is_version_range(Registry::kDebian, text)) << text;
}

// An empty range would mean "any" to npm and nothing to PyPI; a rule without versions says "any" by
// itself.
TEST(Versions, AnEmptyRangeHoldsNothing) {
  for (const Registry registry : {Registry::kPypi, Registry::kNpm, Registry::kDebian}) {
    EXPECT_FALSE(is_version_range(registry, ""));
    EXPECT_FALSE(version_matches(registry, "", "1.2.3"));
  }
}

TEST(Versions, AreBounded) {
  const std::string digits(256, '1'), tail(300, 'a');
  EXPECT_TRUE(version_matches(Registry::kPypi, ">=1", digits));
  EXPECT_FALSE(version_matches(Registry::kPypi, ">=1", digits + "1"));
  EXPECT_FALSE(version_matches(Registry::kNpm, ">=0.0.0-0", "1.0.0-" + tail));
  EXPECT_FALSE(version_matches(Registry::kDebian, "1*", "1" + tail));
  EXPECT_FALSE(is_version(Registry::kPypi, digits + "1"));
}

}  // namespace
}  // namespace glovebox::policy::internal
