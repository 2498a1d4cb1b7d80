// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace glovebox::agent {
namespace {

constexpr size_t kHeld = 64 << 10;  // of each direction
constexpr int kEndPatienceMs = 1000;

[[noreturn]] void end(int status, const char* why) {
  if (why[0] != '\0') {
    [[maybe_unused]] const ssize_t n = write(kRelayLog, why, strlen(why));
  }
  _exit(status);
}

// What a connected relay needs of the kernel: anything else ends it. Its peer is a monitor that its
// guest may have taken over.
void keep_to_few_calls() {
  static constexpr unsigned kCalls[] = {SYS_read,         SYS_write,          SYS_poll,
                                        SYS_accept4,      SYS_close,          SYS_exit_group,
                                        SYS_rt_sigreturn, SYS_restart_syscall};
  constexpr auto kCount = static_cast<unsigned char>(sizeof kCalls / sizeof kCalls[0]);
  sock_filter program[5 + kCount + 1] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (unsigned char i = 0; i < kCount; ++i)
    program[4 + i] =
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kCalls[i], static_cast<unsigned char>(kCount - i), 0);
  program[4 + kCount] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  program[5 + kCount] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog filter = {sizeof program / sizeof program[0], program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    end(1, "glovebox: relay: no filter of system calls\n");
}

// A descriptor without a wish is left out: an end of the other side would be reported for ever.
pollfd wish(int fd, bool input, bool output) {
  const auto events = static_cast<short>((input ? POLLIN : 0) | (output ? POLLOUT : 0));
  return {events != 0 ? fd : -1, events, 0};
}

// One direction. What is held goes out before more comes in.
struct Flow {
  char bytes[kHeld];
  size_t begin = 0, end = 0;
  bool is_over = false;  // the source has ended, or the destination takes nothing any more

  bool is_empty() const { return begin == end; }
  bool wants_input() const { return !is_over && is_empty(); }
  void take(int fd) {
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0) {
      begin = 0;
      end = static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      is_over = true;
    }
  }
  void give(int fd) {
    const ssize_t n = write(fd, bytes + begin, end - begin);
    if (n > 0) {
      begin += static_cast<size_t>(n);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
      begin = end = 0;
      is_over = true;
    }
  }
};

Flow down, up;  // to the agent, from it
int agent = -1;
int console = kRelayConsole;

void log_console() {
  char text[4096];
  const ssize_t n = read(console, text, sizeof text);
  if (n > 0) {
    [[maybe_unused]] const ssize_t kept =
        write(kRelayLog, text, static_cast<size_t>(n));  // a full log loses it
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    console = -1;
  }
}

// The monitor is gone: nothing comes any more but what it had said.
[[noreturn]] void finish() {
  while (agent >= 0) {
    if (up.is_empty()) up.take(agent);
    if (up.is_empty()) break;
    const size_t before = up.begin;
    up.give(kRelayFromAgent);
    if (!up.is_empty() && up.begin == before) break;  // nobody takes it
  }
  for (int i = 0; i < 64 && console >= 0; ++i) log_console();
  end(0, "");
}

// A monitor that ends closes its connections first; whether it has ended is known a moment later.
[[noreturn]] void lose_agent() {
  pollfd monitor = wish(kRelayMonitor, true, false);
  if (poll(&monitor, 1, kEndPatienceMs) > 0) finish();
  end(1, "glovebox: the agent's channel ended\n");
}

void take_agent() {
  agent = accept4(kRelayListener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (agent >= 0) close(kRelayListener);
}

}  // namespace

void relay() {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_DUMPABLE, 0);
  static constexpr int kGiven[] = {kRelayToAgent, kRelayFromAgent, kRelayListener, kRelayMonitor,
                                   kRelayConsole};
  for (const int fd : kGiven) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (fd != kRelayMonitor && fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0))
      end(1, "glovebox: relay: a descriptor is missing\n");
  }
  keep_to_few_calls();
  while (true) {
    const bool is_connected = agent >= 0;
    pollfd p[] = {wish(kRelayMonitor, true, false),
                  wish(console, console >= 0, false),
                  wish(kRelayListener, !is_connected, false),
                  wish(agent, is_connected && up.wants_input(), is_connected && !down.is_empty()),
                  wish(kRelayToAgent, is_connected && down.wants_input(), false),
                  wish(kRelayFromAgent, false, !up.is_empty())};
    if (poll(p, sizeof p / sizeof p[0], -1) < 0) continue;
    if (p[0].revents != 0) finish();
    if (p[1].revents != 0) log_console();
    if (p[2].revents != 0) take_agent();
    if ((p[3].revents & ~POLLIN) != 0 && !down.is_empty()) down.give(agent);
    if ((p[3].revents & ~POLLOUT) != 0 && up.wants_input()) up.take(agent);
    if (p[4].revents != 0) down.take(kRelayToAgent);
    if (p[5].revents != 0) up.give(kRelayFromAgent);
    if (up.is_over && up.is_empty()) lose_agent();
  }
}

}  // namespace glovebox::agent
