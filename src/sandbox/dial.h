// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "http/stream.h"
#include "sandbox/sandbox.h"

// Connections into one sandbox, made by its agent: to its own loopback only, so they need no link and reach nothing else.
namespace glovebox::sandbox {

// `waits`: returns when somebody has answered there; otherwise the first read tells.
Async<std::unique_ptr<http::Stream>> dial(std::shared_ptr<Sandbox> box, uint16_t port, bool waits);
Async<std::optional<bool>> is_listening(std::shared_ptr<Sandbox> box, uint16_t port);

}  // namespace glovebox::sandbox
