// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// The few file operations that the template store is made of. Paths are ours unless a comment says
// otherwise.
namespace glovebox::image {

Result<std::string> read_file(const std::string& path, size_t max_bytes);
// Reads a regular file by descriptor: kCorrupt past `max_bytes`.
Result<std::string> read_fd(int fd, size_t max_bytes, const std::string& name);
Result<void> write_fd(int fd, std::string_view bytes, const std::string& name);
// Writes aside, syncs, renames over `path`, syncs the directory.
Result<void> replace_file(const std::string& path, std::string_view bytes, unsigned mode);
Result<void> make_directories(const std::string& path, unsigned mode);
Result<void> sync_path(const std::string& path);
// Removes a tree; never follows symbolic links and never leaves the file system of `path`. Absent
// is fine.
Result<void> remove_tree(const std::string& path);
Result<std::vector<std::string>> directory_names(
    const std::string& path);  // sorted; absent is empty
bool path_exists(const std::string& path);

// flock(2), exclusive; 0 or -1 with errno. (<sys/file.h> is hidden by our sys/file.h.)
int lock_fd(int fd, bool is_waiting);

// An advisory lock on a file, held until destroyed. The file stays.
class FileLock {
 public:
  static Result<FileLock> wait(const std::string& path);
  // kConflict when another holder has it.
  static Result<FileLock> attempt(const std::string& path);

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace glovebox::image
