// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/sse_reader.h"

#include <utility>

namespace glovebox::cli {

Result<std::optional<SseReader::Event>> SseReader::next() {
  size_t begin = 0;
  std::optional<Event> out;
  for (size_t end; !out && (end = waiting_.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    std::string_view line = std::string_view(waiting_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (has_fields_) out = std::exchange(current_, {});
      has_fields_ = has_data_ = false;
      continue;
    }
    const size_t colon = line.find(':');
    std::string_view value =
        colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (line.starts_with("id:")) {
      current_.id = value;
      has_fields_ = true;
    } else if (line.starts_with("data:")) {
      if (has_data_) current_.data += '\n';
      current_.data += value;
      has_fields_ = has_data_ = true;
    }
  }
  waiting_.erase(0, begin);
  if (waiting_.size() + current_.data.size() > max_event_bytes_)
    return fail(Code::kPayloadTooLarge,
                "an event is longer than " + std::to_string(max_event_bytes_) + " bytes");
  return out;
}

}  // namespace glovebox::cli
