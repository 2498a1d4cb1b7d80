// SPDX-License-Identifier: Apache-2.0
#include "sys/seccomp.h"

#include <asm/termbits.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

namespace glovebox::sys {
namespace {

sock_fprog program(const std::vector<sock_filter>& filter) {
  return {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
}

// The errno (0: none) of `work` in a child that has both filters.
int under_filter(const std::function<long()>& work) {
  const auto& filter = sandbox_filter();
  if (!filter) return -1;
  pid_t pid = ::fork();
  if (pid == 0) {
    auto arguments = program(filter->arguments), calls = program(filter->calls);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &arguments) != 0) ::_exit(250);
    if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &calls) != 0) ::_exit(251);
    errno = 0;
    ::_exit(work() < 0 ? errno : 0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(SandboxFilter, RefusesEveryCallOfTheList) {
  ASSERT_TRUE(sandbox_filter().has_value());
  for (const auto& name : refused_calls()) {
    int number = ::seccomp_syscall_resolve_name(name.c_str());
    if (number < 0) continue;  // not on this architecture
    EXPECT_EQ(under_filter([&] { return ::syscall(number, 0, 0, 0, 0, 0, 0); }), EPERM) << name;
  }
}

TEST(SandboxFilter, UnknownCallsAndClone3AreNotImplemented) {
  EXPECT_EQ(under_filter([] { return ::syscall(9999); }), ENOSYS);
  EXPECT_EQ(under_filter([] { return ::syscall(SYS_clone3, nullptr, 0); }), ENOSYS);
}

TEST(SandboxFilter, CloneMakesProcessesButNoNamespaces) {
  EXPECT_EQ(under_filter([]() -> long {
              long pid = ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
              if (pid == 0) ::_exit(0);
              return pid;
            }),
            0);
  for (long flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWIPC,
                    CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    EXPECT_EQ(under_filter([&] { return ::syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0); }), EPERM)
        << std::hex << flag;
  }
}

TEST(SandboxFilter, TerminalInjectionIsRefusedAlsoWithHighBitsSet) {
  for (unsigned long high : {0ul, 1ul << 32, 0xfffffffful << 32}) {
    EXPECT_EQ(under_filter([&] { return ::syscall(SYS_ioctl, 0, TIOCSTI | high, "x"); }), EPERM);
    EXPECT_EQ(under_filter([&] { return ::syscall(SYS_ioctl, 0, TIOCLINUX | high, "x"); }), EPERM);
  }
  EXPECT_EQ(under_filter([] { return ::syscall(SYS_ioctl, -1, TCGETS, 0); }), EBADF);
}

TEST(SandboxFilter, OnlyOrdinarySockets) {
  EXPECT_EQ(under_filter([] { return ::socket(AF_UNIX, SOCK_STREAM, 0); }), 0);
  EXPECT_EQ(under_filter([] { return ::socket(AF_INET, SOCK_STREAM, 0); }), 0);
  EXPECT_EQ(under_filter([] { return ::socket(AF_NETLINK, SOCK_RAW, 0); }), 0);
  EXPECT_EQ(under_filter([] { return ::socket(AF_NETLINK, SOCK_RAW, 12 /* NETFILTER */); }),
            EPROTONOSUPPORT);
  for (int family : {17 /* PACKET */, 40 /* VSOCK */, 38 /* ALG */, 16 + 28 /* XDP */, 29 /* CAN */,
                     31 /* BLUETOOTH */}) {
    EXPECT_EQ(under_filter([&] { return ::socket(family, SOCK_STREAM, 0); }), EAFNOSUPPORT)
        << family;
  }
}

}  // namespace
}  // namespace glovebox::sys
