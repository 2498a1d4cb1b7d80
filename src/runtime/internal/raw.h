// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

// Bare system calls for code between clone and exec (launch.h). The library's wrappers would act on
// every thread of the daemon (set*id), take locks, or are not there.
namespace glovebox::runtime::raw {

template <class... Args>
inline long call(long number, Args... args) {
  return ::syscall(number, args...);
}

constexpr unsigned long kReadOnly = 1, kNoSuid = 2, kNoDev = 4, kNoExec = 8, kRemount = 32,
                        kBind = 4096;
constexpr int kDetach = 2;

inline bool mount(const char* source, const char* target, const char* type, unsigned long flags,
                  const char* data) {
  return call(SYS_mount, source, target, type, flags, data) == 0;
}
inline bool bind(const char* source, const char* target) {
  return mount(source, target, nullptr, kBind, nullptr);
}
inline bool bind_read_only(const char* source, const char* target) {
  return bind(source, target) &&
         mount(nullptr, target, nullptr, kRemount | kBind | kReadOnly | kNoSuid | kNoDev | kNoExec,
               nullptr);
}
inline bool make_dir(const char* path, unsigned mode) {
  return call(SYS_mkdirat, AT_FDCWD, path, mode) == 0 || errno == EEXIST;
}
inline size_t length(const char* text) {
  size_t n = 0;
  while (text[n] != '\0') ++n;
  return n;
}
// Writes `text` to a file that exists, or makes it when `mode` is not zero.
inline bool write_text(const char* path, const char* text, unsigned mode = 0) {
  int flags = O_WRONLY | O_CLOEXEC | (mode != 0 ? O_CREAT : 0);
  auto fd = static_cast<int>(call(SYS_openat, AT_FDCWD, path, flags, mode));
  if (fd < 0) return false;
  auto size = static_cast<long>(length(text));
  bool done = call(SYS_write, fd, text, size) == size;
  call(SYS_close, fd);
  return done;
}
inline bool attach(int mount_fd, const char* path) {
  return call(SYS_move_mount, mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}
// Soft and hard limit, or what is left of it: without CAP_SYS_RESOURCE a hard limit cannot be
// raised.
inline bool limit(int resource, uint64_t value) {
  struct {
    uint64_t soft, hard;
  } now{}, wanted{value, value};
  if (call(SYS_prlimit64, 0, resource, nullptr, &now) != 0) return false;
  if (wanted.hard > now.hard) wanted = {now.hard, now.hard};
  return call(SYS_prlimit64, 0, resource, &wanted, nullptr) == 0;
}

// Default action for every signal, then an empty mask: nothing of the daemon's dispositions reaches
// the program.
inline bool reset_signals() {
  struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    uint64_t mask;
  } action{};
  for (int number = 1; number <= 64; ++number) {
    if (number != SIGKILL && number != SIGSTOP) call(SYS_rt_sigaction, number, &action, nullptr, 8);
  }
  uint64_t none = 0;
  return call(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, 8) == 0;
}

}  // namespace glovebox::runtime::raw
