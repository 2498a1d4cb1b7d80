// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "egress/internal/core.h"
#include "egress/internal/watched.h"

namespace glovebox::egress {

// Takes connections from a listening socket in the router namespace. The source address says whose
// they are; one without a link, one that was not redirected, and one above a limit is reset.
Awaitable<void> accept_flows(Core& core, UniqueFd listener);
// Twice a second: deadlines of connections. Each second: what was folded in the log.
Awaitable<void> watch_deadlines(Core& core);

}  // namespace glovebox::egress
