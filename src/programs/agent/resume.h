// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "programs/agent/freezer.h"
#include "programs/agent/json.h"

namespace glovebox::agent {

// What a copy of a sandbox does before anybody may use it (spec/channel.md, `resumed`): takes the identity in it, makes its random
// numbers its own, lets the sandbox go on, runs the hooks of the template. The answer says what is so now, as read back, for the daemon to compare. Blocks for
// as long as the hooks run.
json::object resume(const json::object& hello, const json::object& identity, const Freezer& freezer);

}  // namespace glovebox::agent
