// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/mcp/mcp.h"

// What each method of the protocol answers.
namespace glovebox::api::mcp {

// The version to speak with a client that asked for what `params` says, and the answer that says so.
Version negotiate(const boost::json::object& params);
boost::json::object initialize_result(const Parts& parts, Version version);

// Runs a request of a session; its response, or that there is none, goes to `stream`.
Awaitable<void> run_request(const Parts& parts, SessionPtr session, sandbox::Caller caller, preview::Outside outside,
                            Message message, RunningPtr running, StreamPtr stream);
// Acts on a notification; those that mean nothing here are ignored.
void take_notification(Session& session, const Message& message);

}  // namespace glovebox::api::mcp
