// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace glovebox::cli {

// Cuts a text/event-stream into events. Lines end with LF or CRLF.
class SseReader {
 public:
  explicit SseReader(size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  struct Event {
    std::string id, data;
  };
  void feed(std::string_view bytes) { waiting_ += bytes; }
  // The next whole event, comments skipped; nothing when more bytes are needed; kPayloadTooLarge.
  Result<std::optional<Event>> next();

 private:
  const size_t max_event_bytes_;
  std::string waiting_;
  Event current_;
  bool has_fields_ = false, has_data_ = false;
};

}  // namespace glovebox::cli
