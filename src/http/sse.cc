// SPDX-License-Identifier: Apache-2.0
#include "http/sse.h"

#include <algorithm>

namespace glovebox::http {
namespace {

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find_first_of(std::string_view("\r\n\0", 3)));
}

}  // namespace

std::string sse_event(std::string_view name, std::string_view data, std::string_view id) {
  std::string out;
  out.reserve(data.size() + name.size() + id.size() + 32);
  if (!id.empty()) out.append("id: ").append(first_line(id)).append("\n");
  if (!name.empty()) out.append("event: ").append(first_line(name)).append("\n");
  for (;;) {
    const size_t end = std::min(data.find_first_of("\r\n"), data.size());
    out.append("data: ").append(data.substr(0, end)).append("\n");
    if (end == data.size()) break;
    data.remove_prefix(end + (data.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  return out + "\n";
}

Headers stream_headers(Headers headers, std::string_view content_type) {
  headers.emplace_back("Content-Type", content_type);
  headers.emplace_back("Cache-Control", "no-cache, no-transform");
  headers.emplace_back("X-Accel-Buffering", "no");
  return headers;
}

Async<void> EventStream::begin(Headers extra) {
  co_return co_await response_.begin(200, stream_headers(std::move(extra), "text/event-stream"));
}

Async<void> EventStream::event(std::string_view name, std::string_view data, std::string_view id) {
  const std::string text = sse_event(name, data, id);
  co_return co_await response_.write(text);
}

Async<void> EventStream::keepalive() {
  return response_.write(": keepalive\n\n");
}
Async<void> EventStream::end() {
  return response_.end();
}

}  // namespace glovebox::http
