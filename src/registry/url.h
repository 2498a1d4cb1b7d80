// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

// URLs of upstreams. One parser (libcurl's) decides what an URL means here and when it is fetched, so the two cannot disagree.
namespace glovebox::registry {

struct Origin {
  std::string scheme;  // "http" or "https"
  std::string host;    // lower case; IPv6 with brackets
  uint16_t port = 0;
  friend bool operator==(const Origin&, const Origin&) = default;
  friend auto operator<=>(const Origin&, const Origin&) = default;
};

struct Url {
  std::string text;      // normalised, without credentials and fragment
  Origin origin;
  std::string path;      // still percent-encoded, without query
  std::string fragment;  // decoded from nothing: as written, without '#'
  std::string user, password;
};

// http and https only, with a host, at most 8 KiB, without control characters. kInvalidArgument.
Result<Url> parse_url(std::string_view text);
// `reference` as a page at `base` means it. kInvalidArgument when what comes out is not an URL as above.
Result<Url> resolve_url(const Url& base, std::string_view reference);

}  // namespace glovebox::registry
