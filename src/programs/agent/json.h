// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// The JSON of the channel: objects whose names and paths may be any bytes, as {"b64": "…"} where
// they are not UTF-8.
namespace glovebox::agent {

namespace json = boost::json;

Result<json::object> parse_object(std::string_view text);
std::string to_text(const json::object& object);

json::value json_bytes(std::string_view bytes);
std::optional<std::string> bytes_of(const json::value& value);

// One field each; absent or null gives the fallback, another type kInvalidArgument naming the
// field.
Result<std::string> text_field(const json::object& object, std::string_view name,
                               std::string_view fallback = {});
Result<int64_t> int_field(const json::object& object, std::string_view name, int64_t fallback,
                          int64_t low, int64_t high);
Result<bool> bool_field(const json::object& object, std::string_view name, bool fallback);
const json::value* find_field(const json::object& object, std::string_view name);

// {ok: false, code, message} or, for FAILED, {code, message}.
std::string error_response(const Error& error);
std::string failed_payload(const Error& error);

}  // namespace glovebox::agent
