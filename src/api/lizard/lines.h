// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace glovebox::api::lizard {

// Cuts one stream of bytes into the lines of the event stream: without their newline, the last one also when it has none. A
// line longer than the limit comes in pieces, never cut inside a character.
class LineCutter {
 public:
  static constexpr size_t kMaxLine = 1 << 20;
  explicit LineCutter(size_t max_line = kMaxLine) : max_line_(max_line) {}

  std::vector<std::string> take(std::string_view bytes);  // lines that are complete now
  std::vector<std::string> finish();                      // the rest

 private:
  size_t max_line_;
  std::string rest_;
};

// The head of a stream, up to a limit; the rest is only counted.
class Head {
 public:
  explicit Head(size_t limit) : limit_(limit) {}
  void take(std::string_view bytes);
  bool is_full() const { return bytes_.size() == limit_; }
  // As UTF-8 text. A character that the limit cut in two is left out.
  std::string text() const;

 private:
  size_t limit_;
  std::string bytes_;
};

}  // namespace glovebox::api::lizard
