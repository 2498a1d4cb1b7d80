// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/microvm/engine.h"

namespace glovebox::runtime::microvm {

struct FirecrackerConfig {
  std::string program;  // path or name; empty: firecracker
  std::string jailer;   // likewise, of the same version
  std::string
      relay;  // absolute: the static agent, which carries the channel (programs/agent/relay.h)
  std::string stage;  // an empty directory to build jails on
};

// Firecracker, started through its jailer. Needs KVM. Two processes for each machine: the monitor,
// and a relay between the guest's vsock and the lasting pipes, which ends with the monitor and is
// Machine::process.
std::unique_ptr<Engine> make_firecracker(const FirecrackerConfig& config);

}  // namespace glovebox::runtime::microvm
