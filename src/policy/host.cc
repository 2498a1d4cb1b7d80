// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/host.h"

#include <algorithm>

#include "base/text.h"
#include "http/message.h"
#include "policy/egress.h"

namespace glovebox::policy {
namespace {

constexpr size_t kMaxHostBytes = 253;
constexpr size_t kMaxLabelBytes = 63;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f');
}
bool is_label_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

// Resolvers and URL parsers read a name whose last label is such a number as an IPv4 address
// ("127.1", "0x7f000001"; URL Standard, "ends in a number").
bool is_number(std::string_view label) {
  if (label.starts_with("0x")) {
    label.remove_prefix(2);
    return std::all_of(label.begin(), label.end(), is_hex);
  }
  return std::all_of(label.begin(), label.end(), is_digit);
}

bool is_label(std::string_view label) {
  return !label.empty() && label.size() <= kMaxLabelBytes &&
         std::all_of(label.begin(), label.end(), is_label_char);
}

}  // namespace

std::string normal_host(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxHostBytes) return {};
  std::string host(text);
  std::transform(host.begin(), host.end(), host.begin(), lower);
  const auto labels = split(host, '.');
  if (!std::all_of(labels.begin(), labels.end(), is_label) || is_number(labels.back())) return {};
  return host;
}

bool host_matches(std::string_view pattern, std::string_view host) {
  if (pattern == "*") return true;
  if (!pattern.starts_with("*.")) return pattern == host && !host.empty();
  pattern.remove_prefix(1);
  return host.size() > pattern.size() && host.ends_with(pattern);
}

namespace internal {
namespace {

// A segment that servers may resolve ("..", also as "..;x"), or drop ("").
bool is_treacherous(std::string_view segment) {
  const std::string_view name = segment.substr(0, segment.find(';'));
  return name.empty() || name == "." || name == "..";
}

// The path with percent-encoding undone; nullopt when servers may disagree about what it means.
std::optional<std::string> plain_path(std::string_view path) {
  path = path.substr(0, path.find('?'));
  if (!path.starts_with('/')) return std::nullopt;
  const auto decoded = http::percent_decode(path);
  if (!decoded || std::count(decoded->begin(), decoded->end(), '/') !=
                      std::count(path.begin(), path.end(), '/'))
    return std::nullopt;
  const auto is_odd = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == '%' || c == '#';
  };
  if (std::any_of(decoded->begin(), decoded->end(), is_odd)) return std::nullopt;
  const auto segments = split(std::string_view(*decoded).substr(1), '/');
  // The last one may be empty: "/v1/".
  for (size_t i = 0; i < segments.size(); ++i) {
    if (segments[i].empty() && i + 1 == segments.size()) continue;
    if (is_treacherous(segments[i])) return std::nullopt;
  }
  return decoded;
}

}  // namespace

bool is_path_pattern(std::string_view pattern) {
  if (pattern.ends_with("/*")) pattern.remove_suffix(1);
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7f && c != '?' && c != '*'; };
  if (!std::all_of(pattern.begin(), pattern.end(), is_plain)) return false;
  return pattern.find('%') == pattern.npos && plain_path(pattern).has_value();
}

PathMatch match_path(std::string_view pattern, std::string_view path) {
  const auto plain = plain_path(path);
  if (!plain) return PathMatch::kUnclear;
  if (pattern.ends_with("/*")) {
    pattern.remove_suffix(1);
    return plain->starts_with(pattern) ? PathMatch::kYes : PathMatch::kNo;
  }
  return *plain == pattern ? PathMatch::kYes : PathMatch::kNo;
}

}  // namespace internal
}  // namespace glovebox::policy
