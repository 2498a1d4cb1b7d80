// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/exit_codes.h"

#include <csignal>
#include <string>

#include "programs/glovebox/fields.h"

namespace glovebox::cli {

int exit_code(const Error& error) {
  switch (error.code) {
    case Code::kCommandNotFound:
      return kNotFound;
    case Code::kCommandNotExecutable:
      return kNotExecutable;
    case Code::kSandboxEnded:
    case Code::kSandboxNotReady:
    case Code::kSandboxNotFound:
    case Code::kAgentProtocol:
      return kSandboxGone;
    default:
      return kGlovebox;
  }
}

int exit_code_of_execution(const boost::json::value& execution) {
  const auto* outcome = field(execution, "outcome");
  const std::string type = outcome == nullptr ? "" : text(*outcome, "type");
  const auto signal = outcome == nullptr ? 0 : number(*outcome, "signal");
  if (type == "exited") return static_cast<int>(number(*outcome, "exit_code")) & 0xff;
  if (type == "signalled" && signal > 0) return kSignalBase + static_cast<int>(signal);
  if (type == "timed_out") return kTimedOut;
  if (type == "oom_killed" || type == "killed_by_caller") return kSignalBase + SIGKILL;
  if (type == "sandbox_ended") return kSandboxGone;
  return kOutcomeUnknown;
}

}  // namespace glovebox::cli
