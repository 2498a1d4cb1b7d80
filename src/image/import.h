// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"
#include "image/store.h"
#include "image/templates.h"

namespace glovebox::image {

// Unpacks the archive in a helper process, packs it into staging/rootfs.erofs and returns what its
// configuration said.
Result<Manifest> import_image(const std::string& path, const Staging& staging,
                              const ImportLimits& limits, const ProgressFn& progress);

}  // namespace glovebox::image
