// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace glovebox::runtime {

// Runs a host tool found in PATH or by path and waits for it; a failure holds the end of its
// output.
Result<std::string> run_command(const std::vector<std::string>& command,
                                std::chrono::milliseconds patience);
// Full path of a program in PATH or the system directories (a service's PATH may lack sbin); empty
// when it is not there.
std::string find_program(const std::string& name);

}  // namespace glovebox::runtime
