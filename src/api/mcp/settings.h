// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace glovebox::api::mcp {

// The operator's [mcp] section; docs/mcp.md.
struct Settings {
  // Without a request for this long a session is over, and so is a sandbox of its own that nothing happens in.
  std::chrono::milliseconds session_timeout = std::chrono::minutes(30);
  size_t max_sessions = 256;           // of all clients
  std::string template_name;            // of the sandboxes that sessions make for themselves; empty: interpreter if there is one, else base
};

}  // namespace glovebox::api::mcp
