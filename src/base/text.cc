// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace glovebox {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the valid UTF-8 sequence at the start of `s`, or 0. `*wanted` gets the length the first byte announces
// (0 when the first byte can start nothing) and `*good` how many bytes fit so far.
size_t sequence_length(std::string_view s, size_t* wanted, size_t* good) {
  const auto lead = static_cast<unsigned char>(s[0]);
  *good = 1;
  *wanted = lead < 0x80 ? 1 : lead >= 0xC2 && lead <= 0xDF ? 2 : lead >= 0xE0 && lead <= 0xEF ? 3
            : lead >= 0xF0 && lead <= 0xF4                ? 4
                                                          : 0;
  if (*wanted == 0) return 0;
  for (size_t i = 1; i < *wanted; ++i) {
    if (i >= s.size()) return 0;
    const auto b = static_cast<unsigned char>(s[i]);
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1) {  // no overlong forms, no surrogates, nothing above U+10FFFF
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (b < low || b > high) {
      *wanted = 0;  // no further byte can complete it
      return 0;
    }
    ++*good;
  }
  return *wanted;
}

}  // namespace

std::string iso_time(WallTime time) {
  const int64_t ms = unix_millis(time);
  const int64_t fraction_ms = (ms % 1000 + 1000) % 1000;  // before 1970, too, it counts upwards
  const time_t seconds = static_cast<time_t>((ms - fraction_ms) / 1000);
  struct tm tm;
  ::gmtime_r(&seconds, &tm);
  std::array<char, 40> text;
  const size_t n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &tm);
  std::array<char, 8> fraction;
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ", static_cast<int>(fraction_ms));
  return std::string(text.data(), n) + fraction.data();
}

std::string iso_time_now() { return iso_time(std::chrono::system_clock::now()); }

int64_t unix_millis(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}
WallTime from_unix_millis(int64_t ms) {
  using std::chrono::milliseconds;
  const int64_t first = std::chrono::ceil<milliseconds>(WallTime::min().time_since_epoch()).count();
  const int64_t last = std::chrono::floor<milliseconds>(WallTime::max().time_since_epoch()).count();
  return WallTime(milliseconds(std::clamp(ms, first, last)));
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  const std::string clean = is_utf8(text) ? std::string() : utf8_lossy(text);
  for (const char c : clean.empty() ? text : std::string_view(clean)) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          std::array<char, 8> escape;
          std::snprintf(escape.data(), escape.size(), "\\u%04x", c);
          out += escape.data();
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

bool is_utf8(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (static_cast<unsigned char>(bytes[i]) < 0x80) {
      ++i;
      continue;
    }
    size_t wanted, good;
    const size_t n = sequence_length(bytes.substr(i), &wanted, &good);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t i = 0;
  while (i < bytes.size()) {
    size_t wanted, good;
    const size_t n = sequence_length(bytes.substr(i), &wanted, &good);
    if (n == 0) {
      out += kReplacement;  // one for each maximal ill-formed part (Unicode 15, table 3-8)
      i += good;
    } else {
      out += bytes.substr(i, n);
      i += n;
    }
  }
  return out;
}

size_t utf8_complete_prefix(std::string_view bytes) {
  // A sequence is at most four bytes: only the last three can be an unfinished start.
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const size_t at = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) == 0x80) continue;
    size_t wanted, good;
    if (sequence_length(bytes.substr(at), &wanted, &good) == 0 && wanted > back) return at;
    break;
  }
  return bytes.size();
}

std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : bytes) {
    out += kDigits[c >> 4];
    out += kDigits[c & 15];
  }
  return out;
}

namespace {
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
}

std::string base64_encode(std::string_view in) {
  std::string out;
  out.reserve((in.size() + 2) / 3 * 4);
  for (size_t i = 0; i < in.size(); i += 3) {
    uint32_t v = static_cast<unsigned char>(in[i]) << 16;
    if (i + 1 < in.size()) v |= static_cast<unsigned char>(in[i + 1]) << 8;
    if (i + 2 < in.size()) v |= static_cast<unsigned char>(in[i + 2]);
    out += kBase64[v >> 18];
    out += kBase64[(v >> 12) & 63];
    out += i + 1 < in.size() ? kBase64[(v >> 6) & 63] : '=';
    out += i + 2 < in.size() ? kBase64[v & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  static const auto table = [] {
    std::array<int8_t, 256> t;
    t.fill(-1);
    for (int i = 0; i < 64; ++i) t[static_cast<unsigned char>(kBase64[i])] = static_cast<int8_t>(i);
    return t;
  }();
  size_t padding = 0;
  while (padding < 2 && !text.empty() && text.back() == '=') {
    text.remove_suffix(1);
    ++padding;
  }
  if (text.size() % 4 == 1 || (padding != 0 && (text.size() + padding) % 4 != 0)) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t v = 0;
  int bits = 0;
  for (const unsigned char c : text) {
    if (table[c] < 0) return std::nullopt;
    v = (v << 6) | static_cast<uint32_t>(table[c]);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>((v >> bits) & 0xFF);
    }
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (true) {
    const size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end == std::string_view::npos ? end : end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string human_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace glovebox
