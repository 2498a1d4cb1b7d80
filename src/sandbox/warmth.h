// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "http/stream.h"
#include "sandbox/service.h"

// What runs in a sandbox of the pool before it has an owner. Who brings it there is a layer above, and given to the manager.
namespace glovebox::sandbox {

// The way into a sandbox: of its owner's, or while it has none. Lives as long as the call that it is given to.
class Inside {
 public:
  virtual ~Inside() = default;
  // What SandboxService says of calls of the same name.
  virtual Async<ExecutionPtr> execute(ExecSpec spec) = 0;
  virtual Async<std::unique_ptr<http::Stream>> dial(uint16_t port, SandboxService::Dialling how) = 0;
};

// Starts what `wanted` names as a detached execution that is background, and returns when it is ready and at rest. What it knows of
// its environment and owner is the template's: the first call of an owner tells it. kUnsupported: the template cannot have it.
using Warmer = std::function<Async<void>(Inside& inside, const std::vector<std::string>& wanted)>;

}  // namespace glovebox::sandbox
