// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/image_type.h"

namespace glovebox::api::mcp {

std::string_view image_type(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\x89PNG\r\n\x1a\n"sv)) return "image/png";
  if (head.starts_with("\xff\xd8\xff"sv)) return "image/jpeg";
  if (head.starts_with("GIF87a"sv) || head.starts_with("GIF89a"sv)) return "image/gif";
  if (head.size() >= kImageHeadBytes && head.starts_with("RIFF"sv) && head.substr(8, 4) == "WEBP"sv) return "image/webp";
  return {};
}

}  // namespace glovebox::api::mcp
