// SPDX-License-Identifier: Apache-2.0
#include "image/apt_progress.h"

#include <gtest/gtest.h>

namespace glovebox::image {
namespace {

using std::chrono::seconds;

TEST(AptProgress, ReadsSizes) {
  EXPECT_EQ(parse_apt_size("25.4 MB of archives."), 25'400'000u);
  EXPECT_EQ(parse_apt_size("140 kB]"), 140'000u);
  EXPECT_EQ(parse_apt_size("512 B"), 512u);
  EXPECT_EQ(parse_apt_size("1.5 GB"), 1'500'000'000u);
  EXPECT_EQ(parse_apt_size("nothing"), 0u);
}

TEST(AptProgress, CountsPackagesAndEstimatesTheEnd) {
  const AptProgress::Time start{};
  AptProgress p(start);
  EXPECT_FALSE(p.feed("Reading package lists...", start));
  p.feed("0 upgraded, 20 newly installed, 0 to remove and 0 not upgraded.", start);
  p.feed("I: installing remaining packages inside the chroot...", start);
  for (int i = 0; i < 2; ++i)
    p.feed("0 upgraded, 80 newly installed, 0 to remove and 0 not upgraded.", start);
  EXPECT_TRUE(p.feed("Need to get 10.0 MB/20.0 MB of archives.", start));
  EXPECT_EQ(p.current().phase, "download");
  EXPECT_EQ(p.current().total, 10'000'000u);
  p.feed("Get:1 http://mirror.test/debian trixie/main amd64 libc6 amd64 2.41-12 [2850 kB]",
         start + seconds(1));
  EXPECT_EQ(p.current().done, 2'850'000u);
  for (int i = 0; i < 50; ++i) p.feed("Unpacking libc6:amd64 (2.41) ...", start + seconds(10));
  EXPECT_EQ(p.current().phase, "unpack");
  EXPECT_EQ(p.current().done, 50u);
  EXPECT_EQ(p.current().total, 100u);
  EXPECT_EQ(p.current().message, "libc6:amd64");
  // 50 of 200 steps in 10 s: 30 s for the rest, and the packing after it.
  EXPECT_EQ(p.current().eta, seconds(38));
  p.feed("Setting up libc6:amd64 (2.41) ...", start + seconds(11));
  EXPECT_EQ(p.current().phase, "configure");
  EXPECT_EQ(p.current().done, 1u);
}

TEST(AptProgress, KeepsWhatExplainsAFailure) {
  AptProgress p({});
  p.feed("Get:1 something", {});
  p.feed("Err:2 http://mirror.test trixie InRelease", {});
  p.feed("E: The repository is not signed.", {});
  EXPECT_EQ(p.complaint(),
            "Err:2 http://mirror.test trixie InRelease\nE: The repository is not signed.");
}

}  // namespace
}  // namespace glovebox::image
