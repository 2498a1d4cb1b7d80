// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>

#include "api/e2b/e2b.h"
#include "http/server.h"

// A request for the port of a sandbox that stands for the vendor's in-sandbox daemon: files and processes.
namespace glovebox::api::e2b {

struct DaemonCall {
  http::Exchange& exchange;
  const Parts& parts;
  sandbox::SandboxInfo info;
  sandbox::Caller caller;  // the sandbox's tenant: the token has said that it may
  std::string user;        // that acts; empty: the sandbox's default

  const http::Request& request() const { return exchange.request; }
  const std::string& acting_user() const { return user.empty() ? info.user : user; }
  // A path of the request as an absolute one; empty is the working directory. kInvalidPath.
  Result<std::string> path(std::string_view text) const;
};

// Headers of every answer: browsers may read it.
http::Headers open_headers();

// RPC: unary calls are answered in full, streams in envelopes; errors of both in their own form.
Async<void> serve_rpc(DaemonCall& call);
// The port of the code interpreter: /execute, /contexts, /health.
Async<void> serve_interpreter(DaemonCall& call);
// GET and POST /files.
Async<void> download(DaemonCall& call);
Async<void> upload(DaemonCall& call);

}  // namespace glovebox::api::e2b
