// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace glovebox::policy::internal {

// "/v1/items", or "/v1/*" (what begins with "/v1/"); printable ASCII without '?', '#', '\', '%',
// empty or dot segments.
bool is_path_pattern(std::string_view pattern);

enum class PathMatch { kNo, kYes, kUnclear };
// Compares with a request's path as sent (a query is left out), percent-encoding undone once.
// kUnclear for paths that servers read in different ways: dot or empty segments, backslashes,
// encoded slashes, double encoding, bytes below space.
PathMatch match_path(std::string_view pattern, std::string_view path);

}  // namespace glovebox::policy::internal
