// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::sys {

// A user namespace in which ids 0 … count-1 are the host's base … base+count-1. It is owned by the
// host's user `base`, not by root: limits that the kernel counts per owner (inotify, mqueue,
// pending signals, nested namespaces) are then each sandbox's own.
Result<UniqueFd> make_user_namespace(uint32_t base, uint32_t count);

}  // namespace glovebox::sys
