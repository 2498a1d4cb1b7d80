// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"

// The guest's kernel: kept below <data>/kernels, one directory for each build, `current` names the one in use.
namespace glovebox::runtime::microvm {

struct GuestKernel {
  std::string vmlinux;    // uncompressed ELF with the PVH note
  std::string initramfs;  // the agent as its first program, and the modules it loads
  std::string release;    // "6.1.0-50-cloud-amd64"
  std::string digest;     // sha256 hex of kernel and modules
};

// The current one, with an initramfs that carries the agent at `agent_path` (made now when it is another than the last one's).
// kRuntimeUnavailable, with what to run, when there is none.
Result<GuestKernel> guest_kernel(const std::string& data_dir, const std::string& agent_path);

// Makes one out of a Debian kernel package and lets it be the current one. `package`: a .deb file; empty: the cloud kernel of this
// machine's Debian, fetched with its apt, which verifies it. Blocks for up to minutes. kUnavailable when the package cannot be had,
// kCorrupt when it is not what it should be.
Result<GuestKernel> build_guest_kernel(const std::string& data_dir, const std::string& agent_path, const std::string& package);

// In hex; of several files: of their sums. Takes a program's start.
Result<std::string> sha256(const std::vector<std::string>& files);

}  // namespace glovebox::runtime::microvm
