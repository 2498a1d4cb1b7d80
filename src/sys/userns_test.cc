// SPDX-License-Identifier: Apache-2.0
#include "sys/userns.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::sys {
namespace {

class UserNamespaceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to map ids";
  }
};

TEST_F(UserNamespaceTest, MapsTheRangeAndIsNotOwnedByRoot) {
  auto space = make_user_namespace(0x20000000, 65536);
  ASSERT_TRUE(space.has_value()) << space.error().message;
  uid_t owner = 0;
  ASSERT_EQ(::ioctl(space->get(), NS_GET_OWNER_UID, &owner), 0);
  EXPECT_EQ(owner, 0x20000000u);
  pid_t pid = ::fork();
  if (pid == 0) {
    if (::setns(space->get(), CLONE_NEWUSER) != 0) ::_exit(1);
    std::string map = read_file("/proc/self/uid_map").value_or("");
    ::_exit(map.find("536870912      65536") != std::string::npos ? 0 : 2);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(UserNamespaceTest, ManyAtOnceDoNotWaitForEachOther) {
  std::vector<std::thread> threads;
  std::atomic<int> made = 0;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 20; ++i)
        made += make_user_namespace(0x20000000 + (t * 20 + i) * 65536, 65536).has_value();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 160);
  EXPECT_EQ(::geteuid(), 0u);  // the daemon's own identity never changes
  EXPECT_TRUE(children().empty());
}

}  // namespace
}  // namespace glovebox::sys
