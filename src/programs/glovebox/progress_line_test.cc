// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace glovebox::cli {
namespace {

std::string content(int fd) {
  std::string text(4096, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

TEST(ProgressLine, SaysPhaseBytesShareAndTimeLeft) {
  EXPECT_EQ(progress_text({"download", 50 << 20, 200 << 20, std::chrono::seconds(90), "libc6"}),
            "download  25%  50.0 MiB of 200.0 MiB  about 1m30s left  libc6");
  EXPECT_EQ(progress_text({"unpack", 0, 0, {}, ""}), "unpack");
  EXPECT_EQ(progress_text({"image", 2048, 0, {}, "a\033[2Jb"}), "image  2.0 KiB  a\\x1b[2Jb");
  EXPECT_EQ(progress_text({"unpack", 113, 555, {}, ""}), "unpack  20%  113 of 555");
  EXPECT_EQ(progress_text({"done", 1, 1, {}, "base"}), "done  base");
}

TEST(ProgressLine, WithoutATerminalIsALineForEachPhaseAndTenth) {
  const UniqueFd file(::memfd_create("progress", MFD_CLOEXEC));
  ProgressLine line(file.get());
  line.show({"resolve", 0, 0, {}, ""});
  line.show({"resolve", 0, 0, {}, "again"});
  for (uint64_t done = 0; done <= 1000; ++done) line.show({"download", done, 1000, {}, ""});
  line.finish();
  const std::string text = content(file.get());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 11);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

}  // namespace
}  // namespace glovebox::cli
