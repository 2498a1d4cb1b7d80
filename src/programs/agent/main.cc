// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "programs/agent/agent.h"
#include "programs/agent/guest_init.h"
#include "programs/agent/privilege.h"
#include "programs/agent/relay.h"

// The only program inside a sandbox that speaks to the daemon: spec/channel.md over standard input
// and output.
namespace {

constexpr int kFirstOwnFd = 200;  // above what shells and programs use by number

[[noreturn]] void die(const char* what) {
  perror(what);
  _exit(70);
}

int move_up(int fd, int flags) {
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, kFirstOwnFd);
  if (moved < 0) moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);  // a very low limit of open files
  if (moved < 0) die("moving the channel");
  if (flags != 0 && fcntl(moved, F_SETFL, fcntl(moved, F_GETFL) | flags) != 0) die("O_NONBLOCK");
  return moved;
}

// Something to put on the standard descriptors: /dev/null, or, in an image without one, a pipe
// without a writer.
int open_null() {
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (fd >= 0) return fcntl(fd, F_DUPFD_CLOEXEC, 3);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) die("pipe");
  close(ends[1]);
  return fcntl(ends[0], F_DUPFD_CLOEXEC, 3);
}

// What a parent forgot to close would be in every process of the sandbox. gVisor reads the bounds as signed, so the end is
// INT_MAX: with ~0u it refuses, and closing one by one takes it a tenth of a second.
void close_inherited(int first) {
  if (syscall(SYS_close_range, first, INT_MAX, 0) == 0) return;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  for (auto fd = static_cast<rlim_t>(first); fd < limit.rlim_cur && fd < 65536; ++fd) close(static_cast<int>(fd));
}

glovebox::agent::Freezer take_group() {
  int moved[2];
  for (int i = 0; i < 2; ++i) {
    moved[i] = move_up(glovebox::agent::kGroupFds[i], 0);
    close(glovebox::agent::kGroupFds[i]);
  }
  return {moved[0], moved[1]};
}

void take_channel(glovebox::agent::AgentOptions& options) {
  options.from_daemon = move_up(STDIN_FILENO, O_NONBLOCK);
  options.to_daemon = move_up(STDOUT_FILENO, O_NONBLOCK);
  options.dev_null = open_null();
  for (int fd = 0; fd < 3; ++fd) {
    if (dup2(options.dev_null, fd) < 0) die("dup2");
  }
}

// Children start with what the agent has, so it has the defaults, whatever its parent had; SIGPIPE
// is blocked, not ignored, because a blocked signal is easily given back.
void reset_signals() {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGPIPE);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
}

rlimit64 raise_open_files() {
  rlimit64 before = {};
  getrlimit64(RLIMIT_NOFILE, &before);
  const rlimit64 raised{before.rlim_max, before.rlim_max};
  setrlimit64(RLIMIT_NOFILE, &raised);
  return before;
}

}  // namespace

int main(int argc, char** argv) {
  glovebox::agent::AgentOptions options;
  options.started = std::chrono::steady_clock::now();
  bool is_guest = false;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--version") == 0) {
      puts("glovebox-agent " GLOVEBOX_VERSION);
      return 0;
    }
    if (strcmp(argv[0], "/init") == 0) break;  // words that the kernel did not understand
    if (strcmp(argv[i], "--relay") == 0) glovebox::agent::relay();
    if (strcmp(argv[i], "--guest") == 0) {
      is_guest = true;
      continue;
    }
    if (strcmp(argv[i], "--no-setup") != 0) {
      fputs(
          "usage: glovebox-agent [--no-setup | --relay]\n  speaks spec/channel.md on standard input and "
          "output\n"
          "  --no-setup  leave host name, /etc, clock and directories alone (tests)\n"
          "  --relay     on the host: carries another one's channel between its socket and the pipes\n",
          stderr);
      return 64;
    }
    options.may_change_system = false;
  }
  if (getpid() == 1 && strcmp(argv[0], "/init") == 0) glovebox::agent::become_guest();
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TRIM_THRESHOLD, 128 * 1024);
  close_inherited(is_guest ? glovebox::agent::kGroupFds[1] + 1 : 3);
  take_channel(options);
  if (is_guest) options.freezer = take_group();
  reset_signals();
  umask(0);  // modes are meant as they are given; executions get 022
  [[maybe_unused]] const int entered = chdir("/");
  options.open_files = raise_open_files();
  prctl(PR_SET_DUMPABLE, 0);  // nobody but root with CAP_SYS_PTRACE reads our memory or descriptors
  glovebox::agent::lay_down_privilege();
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that it is no different when it is not process 1
  glovebox::agent::Agent(options).run();
}
