// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// ClientHellos made for tests.
namespace glovebox::egress::testing {

inline std::string number(size_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i));
  return out;
}
inline std::string vector(std::string_view content, int length_bytes) {
  return number(content.size(), length_bytes) + std::string(content);
}
inline std::string extension(uint16_t type, std::string_view content) {
  return number(type, 2) + vector(content, 2);
}
inline std::string server_names(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += std::string(1, '\0') + vector(name, 2);
  return extension(0, vector(list, 2));
}
// The handshake message.
inline std::string hello_message(std::string_view extensions) {
  std::string body = "\x03\x03" + std::string(32, 'r') + vector("session", 1) +
                     vector("\x13\x01\x0a\x0a", 2) + vector(std::string(1, '\0'), 1);
  body += vector(extensions, 2);
  return '\x01' + vector(body, 3);
}
inline std::string in_records(std::string_view message, size_t size) {
  std::string out;
  for (size_t i = 0; i < message.size(); i += size)
    out += "\x16\x03\x01" + vector(message.substr(i, size), 2);
  return out;
}

}  // namespace glovebox::egress::testing
