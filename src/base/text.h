// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace glovebox {

using WallTime = std::chrono::system_clock::time_point;

std::string iso_time(WallTime time);  // 2026-01-31T12:00:00.123Z
std::string iso_time_now();
int64_t unix_millis(WallTime time);
WallTime from_unix_millis(int64_t ms);  // the nearest there is: years 1678 to 2262

// Appends "text" as a JSON string; bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

bool is_utf8(std::string_view bytes);
// The bytes with every invalid sequence replaced by U+FFFD.
std::string utf8_lossy(std::string_view bytes);
// The longest prefix length of `bytes` that does not end inside a UTF-8 sequence which more bytes could complete.
size_t utf8_complete_prefix(std::string_view bytes);

std::string hex(std::string_view bytes);
std::string base64_encode(std::string_view bytes);
std::optional<std::string> base64_decode(std::string_view text);  // standard alphabet, padding optional, no whitespace

std::vector<std::string> split(std::string_view text, char separator);
// Whole-string decimal; nullopt for anything else, overflow included.
std::optional<int64_t> parse_int(std::string_view text);
// "1536" -> "1.5 KiB", for people.
std::string human_bytes(uint64_t bytes);

}  // namespace glovebox
