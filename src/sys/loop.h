// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::sys {

// A loop device that the kernel frees by itself once neither this descriptor nor a mount uses it
// (LO_FLAGS_AUTOCLEAR).
struct LoopDevice {
  UniqueFd fd;
  std::string path;  // /dev/loopN
};
Result<LoopDevice> attach_loop(const std::string& file, bool read_only);

struct LoopUse {
  std::string device;        // /dev/loopN
  std::string backing_file;  // as the kernel shows it; " (deleted)" at the end when it was unlinked
};
// Attached loop devices whose backing file lies below `directory`.
std::vector<LoopUse> loops_below(const std::string& directory);
// Asks for release; happens when the last user is gone.
Result<void> release_loop(const std::string& device);

}  // namespace glovebox::sys
