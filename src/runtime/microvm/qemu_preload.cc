// SPDX-License-Identifier: Apache-2.0
// Loaded into QEMU when a machine goes on from the memory of a snapshot, which several machines share. QEMU opens the file of a
// private mapping for writing too (before 8.2 it can do nothing else), and in its jail the file is on a read-only mount: the
// kernel refuses that. A private mapping needs the right to read only, so that is what this asks for.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

extern "C" {

long syscall(long number, ...);

static bool is_memory(const char* path) {
  const char* wanted = "/snapshot/memory";  // kJailSnapshotMemory
  while (*path != '\0' && *path == *wanted) ++path, ++wanted;
  return *path == *wanted;
}

static int open_as_told(const char* path, int flags, int mode) {
  if (is_memory(path)) flags = (flags & ~(O_ACCMODE | O_CREAT)) | O_RDONLY;
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int __open64_2(const char* path, int flags) { return open_as_told(path, flags, 0); }

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  return open_as_told(path, flags, mode);
}

}
