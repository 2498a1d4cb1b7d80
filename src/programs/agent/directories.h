// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::agent {

// The directory `name` in `at`, for reading, never through a link: ENOTDIR in errno when it is one.
// Not simply O_NOFOLLOW with O_DIRECTORY, because gVisor (20240729) follows links then.
UniqueFd open_directory(int at, const char* name);
// `path` and what is missing above it (0755). False when it was there.
Result<bool> make_directories(const std::string& path, mode_t mode);
// The directories above `path`, as make_directories(); kNotADirectory when one of them is a file.
Result<void> make_parents(const std::string& path);
// The directory `name` in `at` and everything below it; does not follow links, does not care how
// deep it is.
Result<void> remove_tree(int at, const std::string& name);

}  // namespace glovebox::agent
