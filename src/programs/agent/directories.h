// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace glovebox::agent {

// `path` and what is missing above it (0755). False when it was there.
Result<bool> make_directories(const std::string& path, mode_t mode);
// The directory `name` in `at` and everything below it; does not follow links, does not care how deep it is.
Result<void> remove_tree(int at, const std::string& name);

}  // namespace glovebox::agent
