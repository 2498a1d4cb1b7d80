// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/units.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <tuple>

namespace glovebox::cli {
namespace {

using std::chrono::milliseconds;

TEST(Units, ReadsSizesInMib) {
  const std::pair<const char*, int64_t> cases[] = {{"512", 512}, {"512M", 512},  {"512MiB", 512},
                                                   {"2G", 2048}, {"1.5g", 1536}, {"1T", 1 << 20},
                                                   {"0.5G", 512}};
  for (const auto& [text, mib] : cases) {
    const auto parsed = parse_size_mb(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, mib) << text;
  }
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "M", "0", "-1", "1K", "1.5", "12x", "1 G", "1e3", "1..5G", ".5G",
                           "99999999999999T", "1.0001G"}) {
    const auto parsed = parse_size_mb(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  }
}

TEST(Units, ReadsDurations) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},        {"30", 30'000},    {"500ms", 500},    {"1.5s", 1500},
      {"5m", 300'000}, {"2h", 7'200'000}, {"1d", 86'400'000}};
  for (const auto& [text, ms] : cases) {
    const auto parsed = parse_duration(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->count(), ms) << text;
  }
  for (const char* text : {"", "s", "-1s", "5 m", "5min", "1h30m", "999999999999999d"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(Units, ReadsMounts) {
  const std::tuple<const char*, const char*, const char*, bool> cases[] = {
      {"data:/w", "data", "/w", false}, {"data:/w:ro", "data", "/w", true}, {"vol-1:/a/b:rw", "vol-1", "/a/b", false}, {"d:/a:b", "d", "/a:b", false}};
  for (const auto& [text, volume, path, read_only] : cases) {
    const auto mount = parse_mount(text);
    ASSERT_TRUE(mount) << text;
    EXPECT_EQ(mount->volume, volume);
    EXPECT_EQ(mount->path, path);
    EXPECT_EQ(mount->read_only, read_only) << text;
  }
  for (const char* text : {"", "data", "data:", ":/w", "data:w", "data:w:ro", "/w"}) EXPECT_FALSE(parse_mount(text)) << text;
}

TEST(Units, ReadsPairs) {
  const auto pairs = parse_pairs({"A=1", "B=x=y", "C=", "A=2"}, false);
  ASSERT_TRUE(pairs);
  EXPECT_EQ(*pairs, (StringMap{{"A", "2"}, {"B", "x=y"}, {"C", ""}}));
  EXPECT_FALSE(parse_pairs({"A"}, false));
  EXPECT_FALSE(parse_pairs({"=1"}, true));
  EXPECT_FALSE(parse_pairs({""}, true));
}

TEST(Units, PassesVariablesOnByNameAndLeavesOutThoseThatAreNotSet) {
  ::setenv("GLOVEBOX_UNITS_TEST", "from here", 1);
  ::unsetenv("GLOVEBOX_UNITS_TEST_UNSET");
  const auto pairs = parse_pairs({"GLOVEBOX_UNITS_TEST", "GLOVEBOX_UNITS_TEST_UNSET"}, true);
  ASSERT_TRUE(pairs);
  EXPECT_EQ(*pairs, (StringMap{{"GLOVEBOX_UNITS_TEST", "from here"}}));
}

TEST(Units, WritesDurationsForPeople) {
  const std::pair<int64_t, const char*> cases[] = {
      {0, "0ms"},     {999, "999ms"},     {1000, "1.0s"},      {59'999, "59.9s"},
      {60'000, "1m"}, {200'000, "3m20s"}, {7'500'000, "2h5m"}, {90'000'000, "1d1h"}};
  for (const auto& [ms, text] : cases) EXPECT_EQ(human_duration(milliseconds(ms)), text);
}

TEST(Units, TellsAgesFromIsoTimes) {
  const auto now = parse_iso_time("2026-01-31T12:00:00.500Z");
  ASSERT_TRUE(now);
  EXPECT_EQ(iso_time(*now), "2026-01-31T12:00:00.500Z");
  EXPECT_EQ(human_age("2026-01-31T11:58:59.500Z", *now), "1m1s");
  EXPECT_EQ(human_age("2026-01-31T12:04:00.500Z", *now), "in 4m");
  EXPECT_EQ(human_age("yesterday", *now), "");
}

}  // namespace
}  // namespace glovebox::cli
