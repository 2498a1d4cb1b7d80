// SPDX-License-Identifier: Apache-2.0
#include "sys/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace glovebox::sys {
namespace {

using namespace std::chrono_literals;

TEST(Command, GivesInputAndReturnsOutput) {
  const auto out = run_command({"sh", "-c", "cat; echo end >&2"}, 60s, "hello\n");
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(*out, "hello\nend\n");
  EXPECT_FALSE(run_command({"sh", "-c", "exit 3"}, 60s));
  EXPECT_EQ(run_command({"no-such-program"}, 60s).error().code, Code::kCommandNotFound);
  EXPECT_EQ(run_command({"sleep", "300"}, 50ms).error().code, Code::kTimeout);
}

// A child that keeps a listening socket of ours would hold its port beyond our end.
TEST(Command, ChildrenHaveOnlyTheDescriptorsTheyAreGiven) {
  const UniqueFd leaky(::fcntl(0, F_DUPFD, 50));  // without close-on-exec
  ASSERT_GE(leaky.get(), 50);
  const auto listed = run_command({"sh", "-c", "echo /proc/$$/fd/*"}, 60s);
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->find("/fd/" + std::to_string(leaky.get())), std::string::npos) << *listed;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const auto pid = start_program("/bin/sh", {"sh", "-c", "echo /proc/$$/fd/* >&3"}, {{writer.get(), 3}});
  ASSERT_TRUE(pid) << pid.error().message;
  writer.reset();
  char text[4096] = {};
  ASSERT_GT(::read(reader.get(), text, sizeof text - 1), 0);
  ::waitpid(*pid, nullptr, 0);
  const std::string seen(text);
  EXPECT_NE(seen.find("/fd/3"), seen.npos) << seen;
  EXPECT_EQ(seen.find("/fd/" + std::to_string(leaky.get())), seen.npos) << seen;
}

}  // namespace
}  // namespace glovebox::sys
