// SPDX-License-Identifier: Apache-2.0
#include "sys/pipe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::sys {

Result<LastingPipe> make_lasting_pipe(Direction direction, int capacity_bytes) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return fail_errno("pipe2");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  // Above /proc/sys/fs/pipe-max-size without CAP_SYS_RESOURCE this fails and the pipe keeps its
  // size; it works all the same.
  (void)::fcntl(ends[0], F_SETPIPE_SZ, capacity_bytes);
  struct stat st{};
  if (::fstat(ends[0], &st) < 0) return fail_errno("fstat pipe");
  GB_TRY(auto inner, open_fd("/proc/self/fd/" + std::to_string(ends[0]), O_RDWR));
  auto& outer = direction == Direction::kToSandbox ? write_end : read_end;
  return LastingPipe{std::move(inner), std::move(outer), st.st_ino};
}

Result<UniqueFd> reopen_pipe(int pid, uint64_t inode, Direction direction) {
  int fd = find_descriptor(pid, "pipe:[" + std::to_string(inode) + "]");
  if (fd < 0) return fail(Code::kNotFound, "the process does not hold the pipe");
  int flags = (direction == Direction::kToSandbox ? O_WRONLY : O_RDONLY) | O_NONBLOCK;
  GB_TRY(auto opened, open_fd("/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd), flags));
  struct stat st{};  // the process may have closed and reused the number meanwhile
  if (::fstat(opened.get(), &st) < 0 || !S_ISFIFO(st.st_mode) || st.st_ino != inode) {
    return fail(Code::kNotFound, "the process no longer holds the pipe");
  }
  return opened;
}

}  // namespace glovebox::sys
