// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/call.h"
#include "api/mcp/session.h"
#include "api/mcp/settings.h"
#include "api/preview/gateway.h"
#include "code/interpreter.h"
#include "http/router.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "tenant/keys.h"

// The Model Context Protocol's server at /mcp, transport "Streamable HTTP". docs/mcp.md says what is there.
namespace glovebox::api::mcp {

struct Parts {
  sandbox::SandboxService& service;
  code::Interpreter& code;
  sandbox::Snapshots& snapshots;
  tenant::Keys& keys;
  preview::Gateway* previews = nullptr;
  Executor executor;
  std::string version;  // of the program
  Settings settings;
};

// Loop thread only.
class Server {
 public:
  // What `parts` refers to outlives it, and it outlives the router.
  explicit Server(Parts parts);
  void add_routes(http::Router& router);
  size_t sessions() const { return sessions_.size(); }

 private:
  Async<void> post(Call& call);
  Async<void> get(Call& call);
  Async<void> remove(Call& call);
  Async<void> begin(Call& call, const Message& message);
  Async<void> serve(Call& call, SessionPtr session, Incoming incoming);
  void start_request(const Call& call, const SessionPtr& session, Message message, const StreamPtr& stream);
  Async<void> deliver(Call& call, SessionPtr session, StreamPtr stream, bool as_array);
  Async<void> stream_events(Call& call, SessionPtr session, StreamPtr stream, std::optional<uint64_t> last);

  const Parts parts_;
  Sessions sessions_;
};

}  // namespace glovebox::api::mcp
