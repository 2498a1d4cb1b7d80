// SPDX-License-Identifier: Apache-2.0
// A client's request and an app's response, separated by a line of '%': what the app gets holds nothing that was shown to be let in, and
// both come out as valid headers.
#include <algorithm>
#include <cstdint>
#include <string>

#include "api/preview/address.h"
#include "api/preview/credentials.h"
#include "api/preview/headers.h"
#include "http/framing.h"
#include "http/relay.h"

namespace {

using namespace glovebox;
using namespace glovebox::api::preview;

constexpr std::string_view kDomain = "preview.example.com";
constexpr http::HeadLimits kLimits{16384, 8192, 100};

template <class Out, class Parse>
bool read_head(std::string_view bytes, Out& out, Parse parse) {
  http::HeadScanner scanner(kLimits);
  const auto length = scanner.scan(bytes);
  return length && *length > 0 && parse(bytes.substr(0, *length), out);
}

void check(bool is_true) {
  if (!is_true) __builtin_trap();
}

void check_headers(const http::Headers& headers) {
  for (const auto& [name, value] : headers) check(http::is_valid_header(name, value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find("%\n");
  http::Request request;
  const auto as_request = [](std::string_view head, http::Request& out) { return http::parse_request_head(head, out).has_value(); };
  if (!read_head(text.substr(0, cut), request, as_request)) return 0;
  request.peer = "192.0.2.1:5";
  const auto address = address_of(request, kDomain);
  if (!address || address->port == 0) return 0;
  check(address->path.empty() || address->path.starts_with('/'));
  check(request.path == address->prefix + address->path);

  http::Request inside = request;
  inside.headers = app_headers(request, *address);
  inside.raw_query = strip_query(request.raw_query);
  inside.query = http::parse_query(inside.raw_query);
  check_headers(inside.headers);
  const Credentials left = credentials_of(inside);
  check(left.headers.empty() && left.query.empty() && left.cookies.empty());
  check(http::find_header(inside.headers, "Host") == "localhost:" + std::to_string(address->port));
  (void)is_own_doing(request);

  http::ResponseHead response;
  const auto as_response = [](std::string_view head, http::ResponseHead& out) { return http::parse_response_head(head, false, out).has_value(); };
  if (cut == text.npos || !read_head(text.substr(cut + 2), response, as_response)) return 0;
  http::Headers headers = http::end_to_end(response.headers);
  const bool was_valid = std::all_of(headers.begin(), headers.end(), [](const auto& h) { return http::is_valid_header(h.first, h.second); });
  edit_response(*address, outside_of(request), true, headers);
  if (was_valid) check_headers(headers);
  return 0;
}
