// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

// Reading the daemon's answers. The daemon may be newer than this program, so absent fields and
// other types read as empty.
namespace glovebox::cli {

// Null when `value` is no object or has no such field, or it is null.
const boost::json::value* field(const boost::json::value& value, std::string_view name);
// Nested: "template.name".
std::string text(const boost::json::value& value, std::string_view path);
int64_t number(const boost::json::value& value, std::string_view path);
double real(const boost::json::value& value, std::string_view path);
bool flag(const boost::json::value& value, std::string_view path);
// The items of an array; empty when there is none.
const boost::json::array& items(const boost::json::value& value, std::string_view name);
// The bytes of `name`, or of `name`_b64 when that stands beside it.
std::string bytes(const boost::json::value& value, std::string_view name);

}  // namespace glovebox::cli
