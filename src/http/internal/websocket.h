// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "http/internal/transport.h"
#include "http/message.h"
#include "http/websocket.h"

namespace glovebox::http::internal {

// kInvalidArgument when `request` is no valid handshake (RFC 6455, 4.2.1).
Result<void> check_handshake(const Request& request);
// The server's side, for a request that passed. `received` are bytes that came behind its head.
Async<std::unique_ptr<WebSocket>> accept_websocket(std::shared_ptr<Transport> transport,
                                                   const Request& request, std::string received,
                                                   WebSocketOptions options);
// The client's side, on a connected transport.
Async<std::unique_ptr<WebSocket>> open_websocket(std::shared_ptr<Transport> transport,
                                                 std::string host, std::string target,
                                                 Headers headers, WebSocketOptions options);

}  // namespace glovebox::http::internal
