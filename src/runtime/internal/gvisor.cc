// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime.h"
namespace glovebox::runtime {
std::unique_ptr<Runtime> make_gvisor_runtime(const HostConfig& config) { return make_container_runtime(config); }
}  // namespace glovebox::runtime
