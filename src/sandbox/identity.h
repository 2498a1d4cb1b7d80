// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "sandbox/service.h"

namespace glovebox::sandbox {

// What a copy of a sandbox must have for itself (docs/fork-correctness.md). What is empty it keeps.
struct Identity {
  std::string machine_id;  // 32 hex digits
  std::string boot_id;     // a UUID
  std::string network = {};  // HELLO's `network`, a JSON object of the runtime's; empty: the runtime has seen to it
};
// `own_kernel`: the tier copies its kernel too, and with it the boot id.
Identity new_identity(bool own_kernel);

// Whether the agent of a copy has confirmed all of it in its HELLO_OK, and that it has the host's time and random numbers that no copy
// had before. `sent` and `received`: when HELLO went out and its answer came. kStartFailed names what is missing. Loop thread only.
Result<void> check_confirmation(std::string_view hello_ok, const Identity& identity, const std::string& hostname, WallTime sent,
                                WallTime received);

}  // namespace glovebox::sandbox
