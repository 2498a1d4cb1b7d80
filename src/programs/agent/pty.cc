// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/pty.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>

namespace glovebox::agent {
namespace {

constexpr int kOpenFlags = O_RDWR | O_NOCTTY | O_CLOEXEC;

UniqueFd open_slave(int master) {
#ifdef TIOCGPTPEER
  UniqueFd slave(::ioctl(master, TIOCGPTPEER, kOpenFlags));
  if (slave) return slave;
#endif
  unsigned number = 0;
  if (::ioctl(master, TIOCGPTN, &number) != 0) return UniqueFd();
  char path[32];
  std::snprintf(path, sizeof path, "/dev/pts/%u", number);
  return UniqueFd(::open(path, kOpenFlags));
}

}  // namespace

Result<Pty> open_pty(const User& user, uint16_t columns, uint16_t rows) {
  Pty pty;
  pty.master.reset(::open("/dev/ptmx", kOpenFlags | O_NONBLOCK));
  if (!pty.master) return fail(Code::kUnsupported, "/dev/ptmx: " + errno_text(errno));
  int unlock = 0;
  if (::ioctl(pty.master.get(), TIOCSPTLCK, &unlock) != 0) return fail_errno("unlocking a pty");
  pty.slave = open_slave(pty.master.get());
  if (!pty.slave) return fail(Code::kUnsupported, "the pty's other side: " + errno_text(errno));
  // Best effort: without it programs still work, only /dev/tty's owner looks odd.
  if (::fchown(pty.slave.get(), user.uid, user.gid) == 0) ::fchmod(pty.slave.get(), 0620);
  resize_pty(pty.master.get(), columns, rows);
  return pty;
}

bool resize_pty(int master, uint16_t columns, uint16_t rows) {
  winsize size = {};
  size.ws_col = columns;
  size.ws_row = rows;
  ::ioctl(master, TIOCSWINSZ, &size);
  pid_t group = 0;
  return ::ioctl(master, TIOCGPGRP, &group) == 0;
}

char pty_eof_character(int master) {
  termios settings;
  if (::tcgetattr(master, &settings) != 0) return 4;
  return static_cast<char>(settings.c_cc[VEOF]);
}

}  // namespace glovebox::agent
