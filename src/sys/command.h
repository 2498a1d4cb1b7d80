// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace glovebox::sys {

// Runs a host tool found in PATH or by path, gives it `input` and waits for it; a failure holds the
// end of its output.
Result<std::string> run_command(const std::vector<std::string>& command,
                                std::chrono::milliseconds patience, std::string_view input = {});
// Full path of a program in PATH or the system directories (a service's PATH may lack sbin); empty
// when it is not there.
std::string find_program(const std::string& name);

// Starts the program at `path`, which goes on: a child with default signals and an empty standard input, which
// has of our descriptors only standard output, standard error and those of `descriptors`
// (ours, its number; numbers from 3 on). It is in the namespaces of the calling thread.
Result<pid_t> start_program(const std::string& path, const std::vector<std::string>& argv,
                            const std::vector<std::pair<int, int>>& descriptors);

}  // namespace glovebox::sys
