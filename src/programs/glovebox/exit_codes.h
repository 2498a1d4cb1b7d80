// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>

#include "base/result.h"

// What the program's exit status means: docs/reference/cli.md. `run` and `exec` give the command's
// own status; everything of ours is 120 or above, so that the two are told apart.
namespace glovebox::cli {

enum ExitCode : int {
  kOk = 0,
  kFailedCheck = 1,       // `doctor`: no tier works, or an attack got through
  kUsage = 120,           // the command line is wrong
  kSandboxGone = 121,     // the sandbox ended before or under the command
  kOutcomeUnknown = 122,  // the command's end was not seen
  kTimedOut = 124,        // the command ran into its --timeout
  kGlovebox = 125,        // any other error of Glovebox
  kNotExecutable = 126,
  kNotFound = 127,
  kSignalBase = 128,  // + number of the signal that ended the command
};

int exit_code(const Error& error);
// Of an execution that has ended, as the API describes it.
int exit_code_of_execution(const boost::json::value& execution);

}  // namespace glovebox::cli
