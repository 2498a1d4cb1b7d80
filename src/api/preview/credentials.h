// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "http/message.h"

// What a request brings along to be let in, and the request without it: none of it ever reaches an app.
namespace glovebox::api::preview {

inline constexpr std::string_view kCookie = "glovebox_preview";
inline constexpr std::string_view kTokenQuery = "glovebox_token";

struct Credentials {
  std::vector<std::string> headers, query, cookies;  // tokens, by where they were
};
Credentials credentials_of(const http::Request& request);

// A query without our parameters; every other byte stays.
std::string strip_query(const std::string& raw_query);
// Removes our headers and cookie, and a Referer that shows a token.
void strip_headers(http::Headers& headers);

// False for a request that a page of another origin made the browser send: it would come with our cookie without its owner's doing.
// Following a link is allowed, as the cookie's SameSite=Lax allows it.
bool is_own_doing(const http::Request& request);

}  // namespace glovebox::api::preview
