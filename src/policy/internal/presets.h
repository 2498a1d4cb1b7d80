// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "policy/egress.h"

namespace glovebox::policy::internal {

struct PresetBody {
  std::vector<Rule> allow;  // "preset:<name>[0]", …
  std::vector<Registry> registries;
};

// Null when there is no such preset.
const PresetBody* find_preset(std::string_view name);
// "a, b, c", for messages.
std::string preset_names();

}  // namespace glovebox::policy::internal
