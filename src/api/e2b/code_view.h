// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/text.h"
#include "code/events.h"

namespace glovebox::api::e2b {

// An event as a line of the interpreter's stream, with its end. ASCII only: clients decode each
// piece that arrives by itself.
std::string event_line(const code::Event& event, WallTime now);

// JSON text with every character beyond ASCII as \uXXXX. What is not UTF-8 becomes U+FFFD.
std::string ascii_json(std::string_view json);

}  // namespace glovebox::api::e2b
