// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <vector>

#include "base/result.h"
#include "image/recipe.h"

// What every template has, whatever it was made from: mount points, /workspace, the users root and
// "user", writable places. Works on "/" and therefore runs inside the new root file system, whose
// content may be hostile.
namespace glovebox::image {

Result<void> add_skeleton();
// What changed since `start` gets one fixed time, so that the same inputs give the same image
// whenever they are built.
Result<void> settle_times(time_t start);
Result<void> add_nodes(const std::vector<RecipeNode>& nodes);

}  // namespace glovebox::image
