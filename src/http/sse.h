// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "http/server.h"

namespace glovebox::http {

// One event in text/event-stream form. Line ends inside `data` (CR, LF, CRLF) become several
// "data:" lines; `name` and `id` must not hold any and are cut at the first.
std::string sse_event(std::string_view name, std::string_view data, std::string_view id = {});

// `headers` with what an answer needs that comes bit by bit: its type, no caching, no buffering by a proxy.
Headers stream_headers(Headers headers, std::string_view content_type);

// Server-sent events over a response. Idle streams need a keepalive() at least every 15 s, else
// proxies cut them.
class EventStream {
 public:
  static constexpr std::chrono::seconds kKeepalive{15};

  explicit EventStream(ResponseWriter& response) : response_(response) {}
  Async<void> begin(Headers extra = {});  // 200, text/event-stream, no caching, no proxy buffering
  Async<void> event(std::string_view name, std::string_view data, std::string_view id = {});
  Async<void> keepalive();  // the comment ": keepalive"
  Async<void> end();

 private:
  ResponseWriter& response_;
};

}  // namespace glovebox::http
