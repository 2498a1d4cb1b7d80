// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

// Ext4 file systems in files of ours. What is in them was written by this kernel or another one of
// ours, never by a sandbox.
namespace glovebox::sys {

// A detached mount without devices and set-id programs; its loop device goes with it. Read-only:
// the file system itself is, and so is the device, so that any number of such mounts may be there
// at once; recover_ext4() comes first then.
Result<UniqueFd> mount_ext4(const std::string& image, bool read_only);

// A mount that went takes its loop device with it a moment later: waits for that. kTimeout names
// who still has it.
Result<void> wait_unmounted(const std::string& image);

// Replays what a host that lost its power left in the journal. Nobody may have it mounted for
// writing. One at a time.
Result<void> recover_ext4(const std::string& image);

// Bytes of files and directories in it, as of when it was last unmounted.
std::optional<uint64_t> ext4_use(const std::string& image);

}  // namespace glovebox::sys
