// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

// Directories of this host as tar streams. Both calls block and belong on a thread of the pool.
namespace glovebox::cli {

// Writes the contents of `directory` to `fd` as POSIX pax; names are relative to it. Links are
// stored as links, never followed. Returns what was left out: sockets, pipes, devices, files that
// cannot be read.
Result<std::vector<std::string>> pack_directory(const std::string& directory, int fd);

// Extracts the tar that comes out of `fd` below `directory`, which exists. The archive is hostile:
// kInvalidPath for an entry whose name is absolute or has "..", and for one that would go through a
// symbolic link. Left out and returned, with the reason: links that point outside `directory`, and
// everything that is no file, directory or link. Owners and set-id bits are not taken over.
Result<std::vector<std::string>> unpack_into(const std::string& directory, int fd);

// True when a symbolic link `name` (relative) with this target stays below the root of the archive,
// read as text.
bool link_stays_inside(const std::string& name, const std::string& target);
// True for a relative path without ".." and without NUL.
bool is_safe_name(const std::string& name);

}  // namespace glovebox::cli
