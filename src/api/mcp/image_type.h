// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace glovebox::api::mcp {

// "image/png" for the beginning of a PNG file, likewise JPEG, GIF and WebP; empty for anything else.
std::string_view image_type(std::string_view head);
inline constexpr size_t kImageHeadBytes = 12;

}  // namespace glovebox::api::mcp
