// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api/mcp/settings.h"
#include "api/preview/settings.h"
#include "base/result.h"
#include "network/network.h"
#include "runtime/runtime.h"
#include "sandbox/config.h"

namespace glovebox {

// Reads the operator's TOML file over the other arguments. Unknown keys, wrong types and values out of range are
// kInvalidArgument with file, line and column. docs/reference/config.md lists the keys.
Result<void> read_config_file(const std::string& path, sandbox::Config* config, api::preview::Settings* preview, network::Config* network,
                              api::mcp::Settings* mcp, runtime::MicrovmConfig* microvm);

}  // namespace glovebox
