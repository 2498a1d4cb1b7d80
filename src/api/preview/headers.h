// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/preview/address.h"
#include "http/message.h"

// The headers of a request as an app in a sandbox gets them, and of its response as the client gets them.
namespace glovebox::api::preview {

// Where the client is, as far as it and the proxies before us tell.
struct Outside {
  std::string scheme;  // "http" or "https"
  std::string host;    // as in a Host header
};
Outside outside_of(const http::Request& request);

// The app sees itself as localhost:<port>, which development servers insist on; an Origin that was its own stays its own.
http::Headers app_headers(const http::Request& request, const Address& address);

// Corrects Location and Set-Cookie, so that they mean the app and nothing beside it; drops what would reach beyond the preview.
// `is_isolated`: the browser is told to give the page an origin of its own (path form).
void edit_response(const Address& address, const Outside& outside, bool is_isolated, http::Headers& headers);

}  // namespace glovebox::api::preview
