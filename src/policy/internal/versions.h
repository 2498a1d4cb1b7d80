// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "policy/packages.h"

namespace glovebox::policy::internal {

// Does a range such as ">=1,<2" or "^1.2 || 3.x" hold a pre-release that lies between its ends? npm
// says: only when the range names a pre-release of the same version. A rule that forbids takes it
// in (kInRange). PEP 440 and Debian have one answer only.
enum class Prereleases { kAsRegistry, kInRange };

bool is_version(Registry registry, std::string_view version);
// Empty text is no range.
bool is_version_range(Registry registry, std::string_view versions);
// False when either cannot be read.
bool matches(Registry registry, std::string_view versions, std::string_view version,
             Prereleases prereleases);

}  // namespace glovebox::policy::internal
