// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "base/result.h"

namespace glovebox::api::lizard {

// How an error leaves in this dialect. The client chooses its exception class by the status alone.
struct WireError {
  int status = 500;
  boost::json::object body;  // "error": a sentence, "code": UPPER_CASE, and the numbers that go with 429
};
WireError wire_error(const Error& error);

// The dialect's own refusals, which have no Code of their own; they travel as errors with details.lizard_code.
Error refusal(Code code, std::string lizard_code, std::string message);

}  // namespace glovebox::api::lizard
