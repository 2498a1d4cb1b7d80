// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace glovebox {

// Runs as one of the processes that the daemon's network starts of this program, when `arguments` name one; its exit status.
std::optional<int> run_network_process(const std::vector<std::string>& arguments);

}  // namespace glovebox
