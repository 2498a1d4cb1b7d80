// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Running this program again as a helper process (run_helper() in templates.h is its other end).
// Arguments and lines of text are all that passes between the two.
namespace glovebox::image {

struct HelperJob {
  std::string mode;
  std::vector<std::string> arguments;
  std::vector<int> fds;  // become 3, 4, … in the helper; the caller keeps its own
};

// Runs the helper to its end; `on_line` gets each line it prints (both outputs; cut at 16 KiB,
// arbitrary bytes). The helper and all its processes die with the calling thread. Its error line
// comes back as typed error; anything but a clean end without one is kInternal with its last lines.
Result<void> run_helper_job(const HelperJob& job,
                            const std::function<void(std::string_view line)>& on_line);

// For the helper's side: the line that run_helper_job() turns into an error again.
std::string error_line(const Error& error);

}  // namespace glovebox::image
