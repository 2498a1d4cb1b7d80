// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

namespace glovebox {
namespace {

TEST(Utf8, ReplacesEachMaximalIllFormedPartOnce) {
  EXPECT_EQ(utf8_lossy("a\xE4\xB8z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(utf8_lossy("\xFF\xFE"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(utf8_lossy("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(utf8_lossy("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(utf8_lossy("\xE4\xB8\xAD"), "\xE4\xB8\xAD");
}

TEST(Utf8, CompletePrefixHoldsBackOnlyWhatCanStillBecomeACharacter) {
  EXPECT_EQ(utf8_complete_prefix("ab\xE4\xB8"), 2u);
  EXPECT_EQ(utf8_complete_prefix("ab\xE4\xB8\xAD"), 5u);
  EXPECT_EQ(utf8_complete_prefix("ab\xFF"), 3u);
  EXPECT_EQ(utf8_complete_prefix("\xF0\x9F\x98"), 0u);
  EXPECT_EQ(utf8_complete_prefix("\xE4z"), 2u);
  EXPECT_EQ(utf8_complete_prefix(""), 0u);
}

TEST(Base64, RoundTripsAllBytesAndRefusesNonsense) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (size_t n = 0; n < all.size(); ++n) {
    EXPECT_EQ(base64_decode(base64_encode(all.substr(n))), all.substr(n));
  }
  EXPECT_EQ(base64_decode("YQ"), "a");
  EXPECT_FALSE(base64_decode("Y"));
  EXPECT_FALSE(base64_decode("Y!=="));
  EXPECT_FALSE(base64_decode("YQ="));
}

TEST(Json, EscapesControlCharactersAndMendsInvalidBytes) {
  std::string out;
  append_json_string(out, std::string_view("a\"\\\n\x01\xFF\0b", 8));
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD\\u0000b\"");
}

TEST(Numbers, ParseIntTakesWholeStringsOnly) {
  EXPECT_EQ(parse_int("-12"), -12);
  for (const char* bad : {"", "1x", " 1", "99999999999999999999", "+1", "0x1"}) EXPECT_FALSE(parse_int(bad)) << bad;
}

TEST(Time, IsoFormKeepsMilliseconds) {
  EXPECT_EQ(iso_time(from_unix_millis(1767225600007)), "2026-01-01T00:00:00.007Z");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
}

TEST(Text, TimesOutsideTheClockAreTheNearestThereIs) {
  EXPECT_EQ(from_unix_millis(INT64_MAX), from_unix_millis(9'223'372'036'854));
  EXPECT_EQ(from_unix_millis(INT64_MIN), from_unix_millis(-9'223'372'036'854));
  EXPECT_EQ(unix_millis(from_unix_millis(-1)), -1);
  EXPECT_EQ(iso_time(from_unix_millis(-1)), "1969-12-31T23:59:59.999Z");
}

}  // namespace
}  // namespace glovebox
