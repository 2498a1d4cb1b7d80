// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/starts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace glovebox {
namespace {

class StartsTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  void expect_start(uint64_t after_stop, uint64_t after_death) const {
    const auto restarts = note_start(directory_);
    ASSERT_TRUE(restarts) << restarts.error().message;
    EXPECT_EQ(restarts->after_stop, after_stop);
    EXPECT_EQ(restarts->after_death, after_death);
  }
  const std::string directory_ = ::testing::TempDir() + "starts-" + std::to_string(::getpid());
};

TEST_F(StartsTest, TellsAStopFromADeath) {
  expect_start(0, 0);
  expect_start(0, 1);
  ASSERT_TRUE(note_stop(directory_));
  expect_start(1, 1);
  ASSERT_TRUE(note_stop(directory_));
  expect_start(2, 1);
  expect_start(2, 2);
}

TEST_F(StartsTest, AFileWithoutSenseIsAFirstStart) {
  for (const char* text : {"", "x", "1 2", "1 2 3", "-1 0 running\n", "1 x stopped\n", "99999999999999999999 0 running\n"}) {
    std::ofstream(directory_ + "/starts") << text;
    expect_start(0, 0);
  }
}

TEST_F(StartsTest, ADirectoryThatCannotBeWrittenIsAnError) {
  EXPECT_FALSE(note_start(directory_ + "/missing"));
}

}  // namespace
}  // namespace glovebox
