// SPDX-License-Identifier: Apache-2.0
#include "channel/json_shape.h"

#include <array>

namespace glovebox::channel {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxNames = 1024;
constexpr size_t kMaxValues = 400'000;

struct Level {
  bool is_object = false;
  size_t names = 1;
};

// The place of the quote that closes the string which opens at `at`, or the end.
size_t skip_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at;
}

}  // namespace

Result<void> check_json_shape(std::string_view text) {
  std::array<Level, kMaxDepth> levels;
  size_t depth = 0, values = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
    } else if (c == '{' || c == '[') {
      if (depth == kMaxDepth) return fail(Code::kAgentProtocol, "JSON is nested too deep");
      levels[depth++] = Level{c == '{', 1};
      ++values;
    } else if (c == '}' || c == ']') {
      if (depth > 0) --depth;
    } else if (c == ',') {
      ++values;
      if (depth > 0 && levels[depth - 1].is_object && ++levels[depth - 1].names > kMaxNames) {
        return fail(Code::kAgentProtocol, "a JSON object has too many names");
      }
    }
    if (values > kMaxValues) return fail(Code::kAgentProtocol, "JSON has too many values");
  }
  return {};
}

}  // namespace glovebox::channel
