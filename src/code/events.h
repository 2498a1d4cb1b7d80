// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"

// What the runner in a sandbox says: one JSON object a line. It is hostile input, as everything
// that comes from there.
namespace glovebox::code {

constexpr size_t kMaxLine = 34 << 20;

struct Context {
  std::string id, language, cwd;
  bool is_running = false;
};

// One thing that happened while a cell ran.
struct Event {
  enum class Kind { kStart, kStdout, kStderr, kResult, kError, kKeepalive, kEnd };
  Kind kind = Kind::kKeepalive;
  std::string text;               // output
  std::string context, language;  // of kStart
  int64_t count = 0;              // of kStart and kEnd: which cell of the context it is, from 1
  // Of kResult: by MIME type, binary ones as base64; also "data" (columns of a table) and "chart"
  // (what a figure shows).
  boost::json::object data;
  std::vector<std::string> dropped;  // representations that were too large
  bool is_main = false;  // the value of the cell's last expression; else it was displayed
  // Of kError. `problem`: exception, timeout, interrupted, died, exit, sandbox_ended.
  std::string name, value, traceback, problem;
  std::optional<int> signal;  // that killed the kernel
};

// kSandboxIo for what makes no sense; the error that a "failed" line stands for.
Result<Event> decode_event(std::string_view line);
// The first event of `next` that says something, or the keepalive that comes when `patience` is
// over.
Async<Event> first_to_say(std::function<Async<Event>()> next, std::chrono::milliseconds patience);
Result<Context> decode_context(std::string_view line);
Result<std::vector<Context>> decode_contexts(std::string_view line);
// "ok", and whether something was interrupted.
Result<bool> decode_ok(std::string_view line);
// "ready".
Result<void> decode_ready(std::string_view line);
// What the runner says before it serves a request that may be its first: that it wants to be told
// whose it is; to be asked once more, since it starts anew in its owner's environment; or that it
// has been told, and the answer follows.
enum class Wish { kNone, kOwner, kAgain, kMet };
Wish decode_wish(std::string_view line);

}  // namespace glovebox::code
