// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "image/templates.h"

// What a helper process can do. Each mode is a function of single-threaded code that may fork.
namespace glovebox::image {

inline constexpr std::string_view kHelperName = "glovebox-image-helper";
bool helper_is_wired();  // run_helper() was called in this process

// Names used by run_helper_job().
inline constexpr const char* kModeDebian =
    "debian";  // arguments: writable directories, "--", command…
inline constexpr const char* kModeFinish = "finish";  // RECIPE START_TIME; fd 3: root
inline constexpr const char* kModeUnpack =
    "unpack";  // limits…; fd 3: blobs, fd 4: root, fd 5: archive or the blobs again
inline constexpr const char* kModePack =
    "pack";  // fd 3: root, fd 4: directory for the image; runs mkfs.erofs

inline constexpr const char* kModeVolumePack =
    "volume-pack";  // DISK BYTES; fd 3: regular file that gets the tar
inline constexpr const char* kModeVolumeUnpack =
    "volume-unpack";  // DISK BYTES; fd 3: the tar

// What the body of a jail that handles an archive begins with: `root` becomes its root, and little more is left to it than files.
Result<void> confine(const UniqueFd& root, const ImportLimits& limits);

Result<void> helper_debian(const std::vector<std::string>& arguments);
Result<void> helper_finish(const std::vector<std::string>& arguments);
Result<void> helper_unpack(const std::vector<std::string>& arguments);
Result<void> helper_pack(const std::vector<std::string>& arguments);
Result<void> helper_volume_pack(const std::vector<std::string>& arguments);
Result<void> helper_volume_unpack(const std::vector<std::string>& arguments);

}  // namespace glovebox::image
