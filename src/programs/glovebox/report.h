// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.h"

namespace glovebox::cli {

// To standard error: message and code, then hint and request id; or one line of JSON, as the API
// writes errors.
void print_error(const Error& error, bool as_json);
std::string render_error(const Error& error, bool colours);
void print_note(std::string_view text);  // "glovebox: text", to standard error

void print(std::string_view text);                 // to standard output
void print_json(const boost::json::value& value);  // one line

}  // namespace glovebox::cli
