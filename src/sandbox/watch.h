// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "sandbox/sandbox.h"

namespace glovebox::sandbox {

// Starting is a call like any other, and wakes the sandbox; what follows is none, and holds it in
// no state.
Async<std::unique_ptr<FileWatch>> watch(std::shared_ptr<Sandbox> box, std::string user,
                                        std::string path, bool recursive);

}  // namespace glovebox::sandbox
