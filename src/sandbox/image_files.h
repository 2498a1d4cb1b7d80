// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "runtime/runtime.h"

// The directories that hold images of sandboxes: immutable once sealed. Everything here blocks.
namespace glovebox::sandbox {

// Makes an empty directory, whatever was there.
Result<void> make_image_directory(const std::string& directory);
// Takes the sum of each file and syncs it: from then on it is on disk, and any change is seen by check_image().
Result<std::vector<runtime::SnapshotPart>> seal_image(const std::string& directory);
// kCorrupt when a part is missing or has other bytes. Parts are read again when their file has changed since they were read last,
// or always. A part without a sum is only looked for.
enum class Reading { kIfChanged, kAlways };
Result<void> check_image(const std::string& directory, const std::vector<runtime::SnapshotPart>& parts, Reading reading);
// The same files under another name, without a copy where the file system can do it.
Result<void> link_image(const std::string& from, const std::string& to);
Result<void> remove_image(const std::string& directory);
uint64_t disk_bytes(const std::string& directory);

}  // namespace glovebox::sandbox
