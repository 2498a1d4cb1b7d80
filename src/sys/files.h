// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// Small files, directories and descriptors. Paths are the daemon's own; nothing here is safe on a
// path that a sandbox can change.
namespace glovebox::sys {

Result<UniqueFd> open_fd(const std::string& path, int flags, mode_t mode = 0);
// Whole content, at most `max_bytes` (the rest is cut). For /proc, /sys and our own small files.
Result<std::string> read_file(const std::string& path, size_t max_bytes = 1 << 20);
Result<std::string> read_fd(int fd, size_t max_bytes = 1 << 20);
// One write(2) into an existing file, as /proc and cgroup files want it.
Result<void> write_file(const std::string& path, std::string_view text);
// Creates or replaces a file of ours.
Result<void> put_file(const std::string& path, std::string_view content, mode_t mode);

bool exists(const std::string& path);
Result<void> make_directory(const std::string& path, mode_t mode);  // an existing directory is fine
Result<void> make_directories(const std::string& path, mode_t mode);  // with its parents
std::vector<std::string> list_directory(
    const std::string& path);  // names, without . and ..; empty on error
// Removes everything below `path`, and `path` itself unless `keep_top`. Does not follow symbolic
// links.
Result<void> remove_tree(const std::string& path, bool keep_top = false);

// Copies only the parts of `from` that hold data; `to` is created with mode 0600 and the same size.
Result<void> copy_sparse(const std::string& from, const std::string& to);

// The file's bytes in an anonymous, executable file that nobody can change any more: every seal is
// set.
Result<UniqueFd> sealed_copy(const std::string& path, const std::string& name);

// The target of /proc/<pid>/fd/<n> and the like; empty when it cannot be read.
std::string read_link(const std::string& path);

}  // namespace glovebox::sys
