// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/microvm/engine.h"

namespace glovebox::runtime::microvm {

struct QemuConfig {
  std::string program;  // path or name; empty: qemu-system-x86_64
  Accel accel = Accel::kKvm;
  std::string stage;  // an empty directory to build jails on
  std::string run_directory;  // for a small file of the engine's
};

// QEMU's machine "microvm": virtio over MMIO, no PCI, no firmware delay. Its channel is a
// virtio-serial port on the lasting pipes.
std::unique_ptr<Engine> make_qemu(const QemuConfig& config);

}  // namespace glovebox::runtime::microvm
