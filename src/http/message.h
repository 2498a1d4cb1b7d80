// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace glovebox::http {

// In the order of the wire, duplicates kept. Names compare without case.
using Headers = std::vector<std::pair<std::string, std::string>>;

bool same_name(std::string_view a, std::string_view b);
// The first header of that name.
std::optional<std::string> find_header(const Headers& headers, std::string_view name);
// True when a comma-separated header such as Connection lists `token` (without case).
bool header_lists(const Headers& headers, std::string_view name, std::string_view token);

// The head of a request; its body is pulled from a BodyReader.
struct Request {
  std::string method;  // as sent; methods are case-sensitive
  std::string target;  // as sent, absolute form included
  std::string path;  // the raw path of `target`: starts with '/', still percent-encoded, no query.
                     // "*" for OPTIONS *
  std::string raw_query;  // without the '?'
  std::vector<std::pair<std::string, std::string>>
      query;  // decoded bytes ('+' is a space), duplicates kept
  Headers headers;
  std::string peer;  // "127.0.0.1:4242", or "unix"
  std::optional<uint64_t> content_length;
  bool has_body = false;  // a Content-Length above 0, or chunked
  bool is_http10 = false;
  bool is_tls = false;  // it came over TLS that the server itself ended

  std::optional<std::string> header(std::string_view name) const;
  std::optional<std::string> query_value(std::string_view name) const;  // the first of that name
};

// The bytes behind percent-encoding; nullopt for "%" without two hex digits.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);
// Encodes everything but RFC 3986 "unreserved" characters: right for one path segment or one query
// value.
std::string percent_encode(std::string_view bytes);
// Splits "a=1&b". As in browsers (WHATWG URL), a "%" without two hex digits stands for itself.
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view raw);

std::string_view reason_phrase(int status);

// "req-…": names a request in its answer and in the log.
std::string new_request_id();

// {"error":{"code","message","hint","retryable","fault","details"}}: the one form in which errors
// leave over HTTP.
std::string error_body(const Error& error);

}  // namespace glovebox::http
