// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "runtime/runtime.h"

namespace glovebox::runtime {

// Where the engine finds things, in its own mount namespace.
struct BundlePaths {
  std::string rootfs;           // the template
  std::string tmp;              // an empty directory for /tmp
  std::string agent_directory;  // holds nothing but the file "agent"; on a read-only file system
  std::string volumes;          // with a volume's number behind it
};

// config.json of an OCI bundle that runs the agent as PID 1.
std::string bundle_config(const StartSpec& spec, const BundlePaths& paths);

}  // namespace glovebox::runtime
