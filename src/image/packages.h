// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "image/templates.h"

namespace glovebox::image {

// What /var/lib/dpkg/status says is installed.
std::vector<Package> parse_dpkg_status(std::string_view text);
// The same of Alpine's /lib/apk/db/installed.
std::vector<Package> parse_apk_installed(std::string_view text);

}  // namespace glovebox::image
