// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>

#include "sandbox/service.h"

namespace glovebox::api::lizard {

struct ExecRequest {
  sandbox::ExecSpec spec;
  bool pid_event = false;
};
// The body of POST …/exec. A timeout outside the possible range is moved into it, as the client's own code runner needs.
Result<ExecRequest> parse_exec(const boost::json::value& body);

// The one number that this protocol has for how a command ended; empty when the truth is not known, for example because the
// sandbox crashed. `ended`: why the sandbox ended, if it has.
std::optional<int> exit_code(const sandbox::Outcome& outcome, const std::optional<sandbox::Ended>& ended);
// What a shell's exit code is for a command that could not be started (127 or 126); empty for any other error.
std::optional<int> start_failure_code(const Error& error);

// "SIGTERM" … of the seven that the client knows.
std::optional<int> signal_number(std::string_view name);

}  // namespace glovebox::api::lizard
