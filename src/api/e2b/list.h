// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sandbox/service.h"

namespace glovebox::api::e2b {

// The metadata filter of a list call: "k=v&k2=v2" whose parts clients encode twice, after the query itself was decoded.
// kInvalidArgument when it does not decode.
Result<sandbox::StringMap> parse_metadata_filter(std::string_view value);

// The place of an item in a list, as an opaque word and back.
struct Place {
  int64_t created_ms = 0;
  std::string id;
  friend auto operator<=>(const Place&, const Place&) = default;
};
std::string encode_place(const Place& place);
std::optional<Place> decode_place(std::string_view token);

}  // namespace glovebox::api::e2b
