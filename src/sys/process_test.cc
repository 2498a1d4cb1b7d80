// SPDX-License-Identifier: Apache-2.0
#include "sys/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/pipe.h"

namespace glovebox::sys {
namespace {

using namespace std::chrono_literals;

pid_t sleeper() {
  pid_t pid = ::fork();
  while (pid == 0) ::pause();
  return pid;
}

TEST(ProcessId, NamesOneProcessNotItsSuccessor) {
  pid_t pid = sleeper();
  auto id = identify(pid);
  ASSERT_TRUE(id.has_value());
  EXPECT_TRUE(is_alive(*id));
  ProcessId other{pid, id->start_time + 1};
  EXPECT_FALSE(is_alive(other));
  EXPECT_EQ(open_pidfd(other).error().code, Code::kNotFound);
  kill_process(other);
  EXPECT_TRUE(is_alive(*id));
  auto fd = open_pidfd(*id);
  ASSERT_TRUE(fd.has_value());
  EXPECT_FALSE(wait_readable(fd->get(), 1ms));
  kill_process(*id);
  EXPECT_TRUE(wait_readable(fd->get(), 60'000ms));
  EXPECT_FALSE(is_alive(*id));
  EXPECT_TRUE(is_present(*id));  // a zombie
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(is_present(*id));
}

TEST(ReapEnded, ReapsOwnZombiesAndKeepsTheLiving) {
  pid_t dead = sleeper(), living = sleeper();
  std::vector<ProcessId> members = {*identify(dead), *identify(living)};
  kill_process(members[0]);
  for (int i = 0; i < 60'000 && members.size() > 1; ++i) {
    reap_ended(&members);
    ::usleep(1000);
  }
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].pid, living);
  EXPECT_EQ(::waitpid(dead, nullptr, WNOHANG), -1);  // it was reaped
  kill_process(members[0]);
  ::waitpid(living, nullptr, 0);
}

TEST(PeekStatus, TellsHowTheChildEndedAndLeavesIt) {
  pid_t pid = ::fork();
  if (pid == 0) ::_exit(9);
  std::optional<int> status;
  for (int i = 0; i < 60'000 && !(status = peek_status(pid)); ++i) ::usleep(1000);
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(WEXITSTATUS(*status), 9);
  EXPECT_TRUE(peek_status(pid).has_value());
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(peek_status(pid).has_value());
}

int write_and_exit(void* argument) {
  *static_cast<int*>(argument) = 42;
  ::syscall(SYS_exit, 5);
  return 0;
}

TEST(SpawnSharingMemory, RunsInOurMemoryAndReturnsAfterIt) {
  int value = 0;
  auto child = spawn_sharing_memory(0, write_and_exit, &value);
  ASSERT_TRUE(child.has_value()) << child.error().message;
  EXPECT_EQ(value, 42);
  int status = 0;
  EXPECT_EQ(::waitpid(child->pid, &status, 0), child->pid);
  EXPECT_EQ(WEXITSTATUS(status), 5);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0);  // the caller's mask is back
}

// The daemon's ends are gone; whoever holds the inner ends keeps what was written, and we find it
// again.
TEST(LastingPipe, SurvivesTheLossOfOurEnds) {
  auto in = make_lasting_pipe(Direction::kToSandbox, 1 << 16);
  auto out = make_lasting_pipe(Direction::kFromSandbox, 1 << 16);
  ASSERT_TRUE(in && out);
  pid_t holder = sleeper();
  ASSERT_EQ(::write(in->outer.get(), "kept", 4), 4);
  in->outer.reset();
  out->outer.reset();
  in->inner.reset();
  out->inner.reset();
  auto again = reopen_pipe(holder, in->inode, Direction::kToSandbox);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  auto reader = reopen_pipe(holder, in->inode, Direction::kFromSandbox);
  char text[8]{};
  EXPECT_EQ(::read(reader->get(), text, sizeof text), 4);
  EXPECT_STREQ(text, "kept");
  EXPECT_EQ(reopen_pipe(holder, in->inode + 100000, Direction::kToSandbox).error().code,
            Code::kNotFound);
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
}

}  // namespace
}  // namespace glovebox::sys
