// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <algorithm>

#include "base/random.h"
#include "base/text.h"

namespace glovebox::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// Decodes into `out`; false at the first bad "%" when `strict`.
bool decode(std::string_view text, bool plus_is_space, bool strict, std::string& out) {
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
      if (strict) return false;
    }
    out += plus_is_space && text[i] == '+' ? ' ' : text[i];
  }
  return true;
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string> find_header(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return value;
  }
  return std::nullopt;
}

bool header_lists(const Headers& headers, std::string_view name, std::string_view token) {
  for (const auto& [key, value] : headers) {
    if (!same_name(key, name)) continue;
    for (const std::string& item : split(value, ',')) {
      if (same_name(trimmed(item), token)) return true;
    }
  }
  return false;
}

std::optional<std::string> Request::header(std::string_view name) const {
  return find_header(headers, name);
}

std::optional<std::string> Request::query_value(std::string_view name) const {
  for (const auto& [key, value] : query) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  if (!decode(text, plus_is_space, true, out)) return std::nullopt;
  return out;
}

std::string percent_encode(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : bytes) {
    const char l = lower(c);
    const bool plain = (l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                       c == '_' || c == '~';
    if (plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view raw) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!raw.empty()) {
    const size_t end = std::min(raw.find('&'), raw.size());
    const std::string_view item = raw.substr(0, end);
    raw.remove_prefix(std::min(end + 1, raw.size()));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    auto& [key, value] = out.emplace_back();
    decode(item.substr(0, equals), true, false, key);
    if (equals != item.npos) decode(item.substr(equals + 1), true, false, value);
  }
  return out;
}

namespace {

struct Reason {
  int status;
  std::string_view phrase;
};

constexpr Reason kReasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

}  // namespace

std::string_view reason_phrase(int status) {
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.phrase;
  }
  return "Status";
}

std::string error_body(const Error& error) {
  const CodeInfo& entry = info(error.code);
  std::string out = "{\"error\":{\"code\":";
  append_json_string(out, entry.name);
  out += ",\"message\":";
  append_json_string(out, error.message);
  out += ",\"hint\":";
  append_json_string(out, entry.advice);
  out += entry.retryable ? ",\"retryable\":true,\"fault\":" : ",\"retryable\":false,\"fault\":";
  append_json_string(out, fault_name(entry.fault));
  out += ",\"details\":{";
  const char* separator = "";
  for (const auto& [key, value] : error.details) {
    out += separator;
    append_json_string(out, key);
    out += ':';
    append_json_string(out, value);
    separator = ",";
  }
  return out + "}}}\n";
}

std::string new_request_id() { return "req-" + random_name(12); }

}  // namespace glovebox::http
