// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"

namespace glovebox::registry {

// Rewrites a package file of npm (a gzipped tar) so that installing it runs no script: package.json of the package itself, and of
// packages bundled in node_modules, lose what without_install_scripts() takes out. False, and nothing was written, when there is
// nothing to take out. The same file always gives the same bytes. Blocks. kCorrupt for what is no such file; kPayloadTooLarge when it
// unpacks to more than 2 GiB.
Result<bool> repack_without_scripts(int fd, const std::function<Result<void>(std::string_view)>& write);

}  // namespace glovebox::registry
