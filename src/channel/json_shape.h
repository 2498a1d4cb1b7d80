// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/result.h"

namespace glovebox::channel {

// What parsing JSON costs is decided by its shape: four megabytes of `[0,0,…]` become two million values, and an object of
// many thousand names is a hash table that its author may have chosen the collisions of. Whether an agent's JSON may be given to
// a parser: nested at most 16 deep, at most 1024 names in an object, at most 400 000 values. It says nothing about syntax.
Result<void> check_json_shape(std::string_view text);

}  // namespace glovebox::channel
