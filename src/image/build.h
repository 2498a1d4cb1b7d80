// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "image/recipe.h"
#include "image/store.h"
#include "image/templates.h"

namespace glovebox::image {

// What a build depends on besides the archive's current content, as one digest. The mirror is not
// part of it.
std::string inputs_digest(const Recipe& recipe, const BuildOptions& options);

// Builds the recipe into staging/rootfs.erofs and returns the manifest's part that the build knows.
// `cache_dir` keeps packages between builds.
Result<Manifest> build_debian(const Recipe& recipe, const BuildOptions& options,
                              const Staging& staging, const std::string& cache_dir,
                              const ProgressFn& progress);

// Packs staging/root with mkfs.erofs, in a process without rights.
Result<void> pack_image(const Staging& staging, bool has_shifted_ids);

// Checks for a program on PATH: kUnavailable names the Debian package that has it.
Result<void> need_program(const std::string& program, const std::string& package);

}  // namespace glovebox::image
