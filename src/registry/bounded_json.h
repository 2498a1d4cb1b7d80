// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "base/result.h"

namespace glovebox::registry {

// JSON of an upstream, leniently as npm's own clients read it (invalid UTF-8 passes, a key twice: the last counts). kCorrupt when it
// does not parse, is deeper than 64 levels, or would take more than `max_memory` bytes: a small text can describe a large value.
Result<boost::json::value> parse_bounded_json(std::string_view text, size_t max_memory);

}  // namespace glovebox::registry
