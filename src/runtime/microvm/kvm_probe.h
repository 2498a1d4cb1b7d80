// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.h"

namespace glovebox::runtime::microvm {

struct KvmFinding {
  bool works = false;
  std::string problem;  // why not, one sentence
};

// Whether guests run on this host's processor: ten million instructions in a virtual machine of one
// page, in a process of its own, at most a second. On nested and paravirtual hosts /dev/kvm may
// open and answer while every guest instruction is emulated by the kernel: a boot would take
// minutes. What was found for a device that is there is remembered in `directory` (empty: nowhere)
// until the host boots again.
KvmFinding probe_kvm(const std::string& directory);

}  // namespace glovebox::runtime::microvm
