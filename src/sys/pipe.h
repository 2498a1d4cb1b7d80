// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::sys {

// One direction between us and a sandbox. `inner` is open for reading and writing, blocking, and is
// handed to the sandbox: as long as it lives there, neither side sees an end or EPIPE, whatever
// happens to us. `outer` is ours: one way, non-blocking.
struct LastingPipe {
  UniqueFd inner;
  UniqueFd outer;
  uint64_t inode = 0;
};
enum class Direction { kToSandbox, kFromSandbox };
Result<LastingPipe> make_lasting_pipe(Direction direction, int capacity_bytes);

// Opens our end again through a process that holds the pipe. kNotFound when none of its descriptors
// is that pipe.
Result<UniqueFd> reopen_pipe(int pid, uint64_t inode, Direction direction);

}  // namespace glovebox::sys
