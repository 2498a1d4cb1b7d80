// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/lines.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace glovebox::api::lizard {

std::vector<std::string> LineCutter::take(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t room = max_line_ - rest_.size();
    const size_t count = std::min({newline, room, bytes.size()});
    rest_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (count == newline) {
      bytes.remove_prefix(1);
      lines.push_back(std::exchange(rest_, {}));
    } else if (rest_.size() == max_line_) {
      size_t whole = utf8_complete_prefix(rest_);
      if (whole == 0) whole = rest_.size();
      lines.push_back(rest_.substr(0, whole));
      rest_.erase(0, whole);
    }
  }
  return lines;
}

std::vector<std::string> LineCutter::finish() {
  if (rest_.empty()) return {};
  return {std::exchange(rest_, {})};
}

void Head::take(std::string_view bytes) { bytes_.append(bytes.substr(0, limit_ - bytes_.size())); }

std::string Head::text() const {
  if (!is_full()) return utf8_lossy(bytes_);
  return utf8_lossy(std::string_view(bytes_).substr(0, utf8_complete_prefix(bytes_)));
}

}  // namespace glovebox::api::lizard
