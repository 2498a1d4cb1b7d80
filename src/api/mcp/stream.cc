// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/stream.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::api::mcp {
namespace {
constexpr size_t kMaxNotifications = 16;  // kept; the older ones say nothing that the newer do not
}

void Stream::add(std::string text, bool is_response) {
  bytes_ += text.size();
  entries_.push_back({++last_, std::move(text), is_response});
  changed_.notify();
}

void Stream::notify(std::string text) {
  const auto is_notification = [](const Entry& entry) { return !entry.is_response; };
  if (static_cast<size_t>(std::ranges::count_if(entries_, is_notification)) >= kMaxNotifications) {
    const auto oldest = std::ranges::find_if(entries_, is_notification);
    bytes_ -= oldest->text.size();
    entries_.erase(oldest);
  }
  add(std::move(text), false);
}

void Stream::respond(std::string text) {
  if (open_requests_ == 0) return;
  --open_requests_;
  add(std::move(text), true);
}

void Stream::drop_response() {
  if (open_requests_ > 0) --open_requests_;
  changed_.notify();
}

void Stream::abandon() {
  open_requests_ = 0;
  changed_.notify();
}

const Stream::Entry* Stream::next(uint64_t number) const {
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.number > number; });
  return found == entries_.end() ? nullptr : &*found;
}

bool Stream::has_only_responses() const {
  return std::ranges::all_of(entries_, [](const Entry& entry) { return entry.is_response; });
}

std::string event_id(const Stream& stream, uint64_t number) {
  return stream.id() + "." + std::to_string(number);
}

std::optional<EventPlace> parse_event_id(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == text.npos || dot == 0 || text.size() > 64) return std::nullopt;
  const auto number = parse_int(text.substr(dot + 1));
  if (!number || *number < 0) return std::nullopt;
  return EventPlace{std::string(text.substr(0, dot)), static_cast<uint64_t>(*number)};
}

}  // namespace glovebox::api::mcp
