// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/diff.h"

// What was different in a sandbox when a snapshot of it was taken, so that others can be compared with the snapshot later.
namespace glovebox::sandbox::diff {

// One change a line. Paths may be any bytes.
std::string encode(const std::vector<FileChange>& changes);
Result<std::vector<FileChange>> decode(std::string_view text);  // kCorrupt

// `base` with these changes made, which compare() gave of it. `base` outlives it.
std::unique_ptr<Tree> changed_tree(Tree& base, std::vector<FileChange> changes);

}  // namespace glovebox::sandbox::diff
