// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <string>
#include <vector>

#include "base/result.h"

// What a process in the container tier may ask of the kernel. Two filters, both installed; the
// stricter answer counts: `calls` allows known harmless calls, answers EPERM to known dangerous
// ones and ENOSYS to all others, so that programs fall back; `arguments` refuses single uses of
// allowed calls (namespaces in clone, TIOCSTI, exotic socket families).
namespace glovebox::sys {

struct SandboxFilter {
  std::vector<sock_filter> calls;
  std::vector<sock_filter> arguments;
};

// Compiled once per process; later calls return the same.
const Result<SandboxFilter>& sandbox_filter();

// The names in the list of refused calls, for tests.
const std::vector<std::string>& refused_calls();

}  // namespace glovebox::sys
