// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/oom.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace glovebox::agent {
namespace {

class Oom : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_GE(fd_ = ::mkstemp(path_.data()), 0); }
  void TearDown() override {
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  void count(int kills) {
    std::ofstream(path_) << "nr_free_pages 7\nmemcg_oom_kill 99\noom_kill " << kills
                         << "\nunevictable_pgs 1\n";
  }

  std::string path_ = ::testing::TempDir() + "vmstatXXXXXX";
  int fd_ = -1;
};

TEST_F(Oom, EachKillIsToldOnce) {
  count(3);
  OomWatch watch(true, path_);
  EXPECT_FALSE(watch.has_killed()) << "what happened before it began";
  count(4);
  EXPECT_TRUE(watch.has_killed());
  EXPECT_FALSE(watch.has_killed());
  count(9);
  EXPECT_TRUE(watch.has_killed());
}

TEST_F(Oom, TheCounterOfASharedKernelSaysNothing) {
  count(3);
  OomWatch watch(false, path_);
  count(4);
  EXPECT_FALSE(watch.has_killed());
}

TEST_F(Oom, AKernelThatDoesNotCount) {
  EXPECT_EQ(oom_kills(path_), 0u);
  EXPECT_EQ(oom_kills(path_ + ".absent"), 0u);
  std::ofstream(path_) << "oom_kill 5\n";
  EXPECT_EQ(oom_kills(path_), 5u);
  std::ofstream(path_) << "oom_kill x\n";
  EXPECT_EQ(oom_kills(path_), 0u);
}

TEST(OwnKernel, IsNotOursHere) {
  EXPECT_FALSE(owns_kernel());
}

}  // namespace
}  // namespace glovebox::agent
