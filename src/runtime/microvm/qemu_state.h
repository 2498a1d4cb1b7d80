// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/async.h"
#include "base/result.h"
#include "runtime/microvm/qmp.h"
#include "sys/process.h"

// What of a QEMU machine is in a snapshot's directory: `memory`, a sparse file that others map, and `devices`, a migration stream
// without it; or, when the machine itself maps another one's memory, `devices` alone with all of it in the stream.
namespace glovebox::runtime::microvm {

inline constexpr const char* kMemoryPart = "memory";
inline constexpr const char* kDevicesPart = "devices";

// Of a machine that stands still. `with_memory`: all of it goes into the stream. What the monitor writes is bounded.
Result<void> save_devices(Qmp& qmp, const std::string& directory, bool with_memory, uint64_t memory_bytes, Deadline deadline);
// Of a machine that was started to wait for it, and stands still afterwards.
Result<void> load_devices(Qmp& qmp, const std::string& directory, bool with_memory, Deadline deadline);

// The memory file of a live machine that stands still; everybody may read the copy (who is in reach of it is decided by its directory).
Result<void> copy_memory(const sys::ProcessId& monitor, uint64_t memory_bytes, const std::string& directory);

}  // namespace glovebox::runtime::microvm
