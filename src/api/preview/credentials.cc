// SPDX-License-Identifier: Apache-2.0
#include "api/preview/credentials.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::api::preview {
namespace {

constexpr std::string_view kTokenHeaders[] = {"X-Glovebox-Preview-Token", "X-Lizard-Access-Token"};
constexpr std::string_view kTokenQueries[] = {kTokenQuery, "lizard_token"};

template <size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}
bool is_token_header(std::string_view name) {
  return std::any_of(std::begin(kTokenHeaders), std::end(kTokenHeaders), [&](std::string_view ours) { return http::same_name(ours, name); });
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// "a=1; b=2" by its pairs, as they stand there.
std::vector<std::string> cookie_pairs(const std::string& header) {
  std::vector<std::string> out;
  for (const std::string& pair : split(header, ';')) out.emplace_back(trimmed(pair));
  return out;
}
bool is_our_cookie(std::string_view pair) { return trimmed(pair.substr(0, pair.find('='))) == kCookie; }

std::string strip_cookies(const std::string& header) {
  std::string out;
  for (const std::string& pair : cookie_pairs(header)) {
    if (is_our_cookie(pair) || pair.empty()) continue;
    out += (out.empty() ? "" : "; ") + pair;
  }
  return out;
}

}  // namespace

Credentials credentials_of(const http::Request& request) {
  Credentials out;
  for (const auto& [name, value] : request.query) {
    if (is_one_of(kTokenQueries, name)) out.query.push_back(value);
  }
  for (const auto& [name, value] : request.headers) {
    if (is_token_header(name)) out.headers.push_back(value);
    if (!http::same_name(name, "Cookie")) continue;
    for (const std::string& pair : cookie_pairs(value)) {
      if (is_our_cookie(pair) && pair.find('=') != pair.npos) out.cookies.emplace_back(trimmed(std::string_view(pair).substr(pair.find('=') + 1)));
    }
  }
  return out;
}

std::string strip_query(const std::string& raw_query) {
  std::string out;
  bool is_first = true;
  for (const std::string& part : split(raw_query, '&')) {
    const auto parsed = http::parse_query(part);
    if (!parsed.empty() && is_one_of(kTokenQueries, parsed[0].first)) continue;
    if (!is_first) out += '&';
    is_first = false;
    out += part;
  }
  return out;
}

void strip_headers(http::Headers& headers) {
  for (auto& [name, value] : headers) {
    if (http::same_name(name, "Cookie")) value = strip_cookies(value);
  }
  std::erase_if(headers, [](const auto& header) {
    const auto& [name, value] = header;
    const bool shows_token = http::same_name(name, "Referer") && std::any_of(std::begin(kTokenQueries), std::end(kTokenQueries),
                             [&](std::string_view query) { return value.find(query) != value.npos; });
    return is_token_header(name) || shows_token || (http::same_name(name, "Cookie") && value.empty());
  });
}

bool is_own_doing(const http::Request& request) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (const auto site = request.header("Sec-Fetch-Site")) {
    const bool is_other = *site == "cross-site" || *site == "same-site";
    return !is_other || (reads && request.header("Sec-Fetch-Mode") == "navigate");
  }
  const auto origin = request.header("Origin");
  if (!origin || (reads && !request.header("Upgrade"))) return true;
  const size_t scheme = origin->find("://");
  const auto is_origin = [&](const std::optional<std::string>& host) { return host && scheme != origin->npos && origin->substr(scheme + 3) == *host; };
  return is_origin(request.header("Host")) || is_origin(request.header("X-Forwarded-Host"));
}

}  // namespace glovebox::api::preview
