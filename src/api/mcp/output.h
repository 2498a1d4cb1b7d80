// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sandbox/service.h"

// An execution's output as a model gets it: text, and never more than was asked for.
namespace glovebox::api::mcp {

inline constexpr int64_t kDefaultOutputBytes = 64 << 10;
inline constexpr int64_t kMaxOutputBytes = 512 << 10;

struct Output {
  std::string text;          // both streams as they came
  std::string streams[2];    // standard output, standard error
  bool last_stream = false;  // which of them the last byte is of
  uint64_t next_cursor = 0;
  bool is_truncated = false;  // something is not in it, or was never kept
};

// All of an ended execution's output, or its beginning and its end.
Async<Output> head_and_tail(sandbox::ExecutionPtr execution, size_t max_bytes);
// From `cursor` on. A character that is not whole yet is left for the next time.
Async<Output> onward(sandbox::ExecutionPtr execution, uint64_t cursor, size_t max_bytes);
// The last line so far, shortened.
Async<std::string> last_line(sandbox::ExecutionPtr execution);

}  // namespace glovebox::api::mcp
