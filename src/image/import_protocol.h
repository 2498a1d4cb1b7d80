// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "image/templates.h"

// What import_image() and its helper agree on.
namespace glovebox::image {

inline constexpr const char* kResultFile =
    "result.json";  // in the directory of blobs: a Manifest, most of it empty
inline constexpr size_t kLimitCount = 6;

// The limits in the order of the helper's arguments.
inline std::array<uint64_t*, kLimitCount> limit_fields(ImportLimits& l) {
  return {&l.archive_bytes, &l.unpacked_bytes, &l.entries, &l.path_bytes, &l.ratio, &l.cpu_seconds};
}

}  // namespace glovebox::image
