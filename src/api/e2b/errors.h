// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "http/server.h"

// How errors leave in this dialect: REST bodies have an integer `code` equal to the status, RPC bodies a string; clients choose their
// exception by it.
namespace glovebox::api::e2b {

// Of the control API and of the file calls. `in_sandbox`: the call went to a sandbox's port, where a sandbox that is gone is 502.
int rest_status(const Error& error, bool in_sandbox);
std::string rest_body(const Error& error, int status);
Async<void> send_rest_error(http::Exchange& exchange, const Error& error, bool in_sandbox, http::Headers headers = {});

// The Connect protocol's name for an error ("not_found"), and the HTTP status that goes with a name.
std::string_view rpc_code(const Error& error);
int rpc_status(std::string_view code);
std::string rpc_body(const Error& error);
// An error that leaves under this name whatever its Code says.
Error rpc_error(std::string_view rpc_name, std::string message);

// A sandbox that is not there (any more): 502, by which clients know that it is gone.
bool is_gone(const Error& error);
Async<void> send_gone(http::Exchange& exchange, std::string_view wire_id, std::string message);

}  // namespace glovebox::api::e2b
