// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "http/server.h"

// Answers of ours in place of an app's.
namespace glovebox::api::preview {

// A page for browsers, the API's error object for programs.
Async<void> send_error_page(http::Exchange& exchange, const Error& error);

// The location may hold a token: nothing remembers it.
Async<void> redirect(http::Exchange& exchange, int status, const std::string& location, http::Headers headers = {});

}  // namespace glovebox::api::preview
