// SPDX-License-Identifier: Apache-2.0
#include "image/apt_sources.h"

#include <gtest/gtest.h>

namespace glovebox::image {
namespace {

using Lines = std::vector<std::string>;

TEST(AptSources, OneLineEntriesGiveTheSameForAnotherSuite) {
  const auto sources = parse_one_line_sources(
      "# comment\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm main "
      "contrib # end\n"
      "deb-src http://mirror.test/debian bookworm main\n"
      "deb\thttps://mirror.test/sec bookworm-security main\n"
      "deb http://mirror.test/debian bookworm-backports main\ndeb http://other.test/x stable-tools "
      "main\ndeb broken\n");
  const auto lines = sources_for_suite(sources, "bookworm", "trixie");
  ASSERT_TRUE(lines) << lines.error().message;
  EXPECT_EQ(*lines, (Lines{"deb [signed-by=/k.gpg] http://mirror.test/debian trixie main",
                           "deb https://mirror.test/sec trixie-security main"}));
}

TEST(AptSources, Deb822EntriesGiveTheSameForAnotherSuite) {
  const auto sources = parse_deb822_sources(
      "Types: deb deb-src\nURIs: http://mirror.test/debian\n http://second.test/debian\nSuites: "
      "bookworm bookworm-updates\n"
      "# inside\nComponents: main\nSigned-By: /k.gpg\n\n"
      "Types: deb\nURIs: http://off.test/\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
      "Types: deb\nURIs: http://key.test/debian\nSuites: stable\nComponents: main\nSigned-By:\n "
      "-----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n");
  const auto lines = sources_for_suite(sources, "bookworm", "trixie");
  ASSERT_TRUE(lines) << lines.error().message;
  EXPECT_EQ(*lines, (Lines{"deb [signed-by=/k.gpg] http://mirror.test/debian trixie main",
                           "deb [signed-by=/k.gpg] http://second.test/debian trixie main",
                           "deb [signed-by=/k.gpg] http://mirror.test/debian trixie-updates main",
                           "deb [signed-by=/k.gpg] http://second.test/debian trixie-updates main",
                           "deb http://key.test/debian trixie main"}));
}

TEST(AptSources, NamesTheOptionWhenNoSourceFits) {
  for (const char* text : {"", "deb mirror+file:/etc/apt/mirrors/debian.list bookworm main\n",
                           "deb cdrom:[Debian]/ bookworm main\n",
                           "deb http://mirror.test/debian bookworm-security main\n",
                           "deb http://mirror.test/ubuntu noble main\n"}) {
    const auto lines = sources_for_suite(parse_one_line_sources(text), "bookworm", "trixie");
    ASSERT_FALSE(lines) << text;
    EXPECT_EQ(lines.error().code, Code::kUnavailable);
    EXPECT_NE(lines.error().message.find("--mirror"), std::string::npos);
  }
  const auto mirrored = sources_for_suite(
      parse_one_line_sources("deb mirror+file:/x bookworm main\n"), "bookworm", "trixie");
  EXPECT_NE(mirrored.error().message.find("mirror+file:"), std::string::npos);
}

TEST(AptSources, AGivenMirrorWinsAndMustBeAUrl) {
  EXPECT_EQ(*machine_sources("http://mirror.test/debian", "trixie"),
            Lines{"deb http://mirror.test/debian trixie main"});
  for (const char* bad :
       {"mirror.test", "ftp://mirror.test/", "http://a b/", "http://x [trusted=yes]"}) {
    EXPECT_EQ(machine_sources(bad, "trixie").error().code, Code::kInvalidArgument) << bad;
  }
}

TEST(AptSources, TakesOverHowTheMirrorIsReached) {
  EXPECT_EQ(
      acquire_options(
          "APT::Architecture \"amd64\";\nAcquire \"\";\nAcquire::http::Proxy "
          "\"http://proxy.test:1/\";\n"
          "Acquire::https::CaInfo \"/ca.pem\";\nAcquire::http::Proxy-Auto-Detect \"/bin/find\";\n"
          "Acquire::Check-Valid-Until \"false\";\nAcquire::http \"\";\nAcquire::GzipIndexes "
          "\"true\";\n"),
      (Lines{"Acquire::http::Proxy \"http://proxy.test:1/\";",
             "Acquire::https::CaInfo \"/ca.pem\";", "Acquire::Check-Valid-Until \"false\";"}));
}

}  // namespace
}  // namespace glovebox::image
