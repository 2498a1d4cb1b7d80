// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sandbox/service.h"

// What a command writes and how it ends, as messages of the stream.
namespace glovebox::api::e2b {

// One data message in its envelope; `kind` is stdout, stderr or pty.
std::string output_event(std::string_view kind, std::string_view bytes);

// Cuts output into messages of at most 32 KiB (16 for a terminal), outside a terminal never inside a character: clients decode each
// message by itself.
class OutputEvents {
 public:
  explicit OutputEvents(bool is_pty) : is_pty_(is_pty) {}
  std::string take(sandbox::Stream stream, std::string_view bytes);  // envelopes that are complete now
  std::string finish();                                              // the rest

 private:
  bool is_pty_;
  std::string rest_[2];
};

// The payload of the last message; nothing when the truth is not known (interrupted).
std::optional<std::string> end_event(const sandbox::Outcome& outcome);

}  // namespace glovebox::api::e2b
