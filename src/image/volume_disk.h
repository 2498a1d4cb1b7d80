// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

// The disks of volumes: sparse files that hold an ext4 file system, written by the kernel only. A
// change of a whole disk (growing, importing) is made in a copy beside it, <path>.new, which takes
// its place in one step. Everything here blocks.
namespace glovebox::image {

inline constexpr uint64_t kMinVolumeBytes = 16ull << 20;

// Makes an empty one. Its root belongs to the templates' user, and anybody inside may write there.
Result<void> make_volume_disk(const std::string& path, uint64_t bytes);

// While nobody has it mounted: kDiskFull when the host has no room for the copy.
Result<void> grow_volume_disk(const std::string& path, uint64_t bytes);

// Its files as a tar (POSIX pax) into `out`, a regular file. While nobody writes to it. Sockets and
// devices are left out.
Result<void> export_volume_disk(const std::string& path, int out);

// Extracts `archive`, a tar, also compressed by gzip or zstd, over what is there; owners, modes,
// times and user.* attributes are taken over, devices left out. The archive is hostile. On an error
// the disk is what it was. While nobody has it mounted.
Result<void> import_volume_disk(const std::string& path, int archive);

}  // namespace glovebox::image
