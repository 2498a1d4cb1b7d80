// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace glovebox::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

// One field of an event. Never a secret, a token or guest output.
struct Field {
  std::string_view key;
  std::string value;
  bool is_text = true;

  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  template <class N>
    requires std::is_arithmetic_v<N>
  Field(std::string_view k, N v) : key(k), is_text(false) {
    if constexpr (std::is_same_v<N, bool>) {
      value = v ? "true" : "false";
    } else {
      value = std::to_string(v);
    }
  }
};
using Fields = std::initializer_list<Field>;

void debug(std::string_view event, Fields fields = {});
void info(std::string_view event, Fields fields = {});
void warn(std::string_view event, Fields fields = {});
void error(std::string_view event, Fields fields = {});

void set_level(Level level);
// True: one JSON object a line; false: text for a terminal. Both go to standard error.
void set_json(bool json);

}  // namespace glovebox::log
