// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace glovebox::cli {
namespace {

// Where and to what the terminal goes back. Plain data: signal handlers read it.
struct Saved {
  volatile sig_atomic_t is_set = 0;
  int fd = -1;
  termios mode{};
} saved;

void restore() {
  if (saved.is_set == 0) return;
  saved.is_set = 0;
  ::tcsetattr(saved.fd, TCSADRAIN, &saved.mode);
}

void restore_and_die(int signal) {
  restore();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

WindowSize window_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

RawMode::RawMode(int fd) {
  if (::isatty(fd) != 1 || ::tcgetattr(fd, &saved.mode) != 0) return;
  static const bool registered = [] {
    std::atexit(restore);
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGQUIT})
      std::signal(signal, restore_and_die);
    return true;
  }();
  (void)registered;
  saved.fd = fd;
  saved.is_set = 1;
  termios raw = saved.mode;
  ::cfmakeraw(&raw);
  ::tcsetattr(fd, TCSADRAIN, &raw);
}

RawMode::~RawMode() {
  restore();
}

}  // namespace glovebox::cli
