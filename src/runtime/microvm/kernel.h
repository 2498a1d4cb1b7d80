// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"

namespace glovebox::runtime::microvm {

// What a machine boots: <data>/kernels/current, a link that is replaced as a whole.
struct GuestKernel {
  std::string vmlinux;    // uncompressed ELF with the PVH note
  std::string initramfs;  // modules, the guest's init and the agent
  std::string release;    // "6.1.0-57-cloud-amd64"
  std::string digest;     // names all of it
};

// kRuntimeUnavailable when there is none. `agent_path`: the agent that the daemon has, which the
// initramfs should hold too.
Result<GuestKernel> guest_kernel(const std::string& data_dir, const std::string& agent_path);

}  // namespace glovebox::runtime::microvm
