// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/async.h"

namespace glovebox::http {

struct WebSocketOptions {
  size_t max_message_bytes = 1 << 20;  // a larger one closes the connection with 1009
  // Nothing heard for half of this: a ping is sent. Nothing for all of it: the connection is cut.
  // Only while a read() waits.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds handshake_timeout = std::chrono::seconds(10);
  std::string subprotocol;  // server: announced in the answer; client: asked for. Empty: none
};

// An open WebSocket, either role. One coroutine may read while others send. Pings are answered, and
// a dead peer is noticed, only while a read() is pending, so keep one. Destroy it when no call is
// under way.
class WebSocket {
 public:
  struct Message {
    bool is_binary = false;
    std::string data;  // text was checked to be UTF-8
  };
  virtual ~WebSocket() = default;

  // The next message. Errors: kCancelled when the connection has ended (close_code() then says
  // how), kTimeout when the peer fell silent, kPayloadTooLarge, kInvalidArgument when the peer
  // broke the protocol.
  virtual Async<Message> read() = 0;
  // Returns when the kernel has taken it: a slow reader suspends the sender. Senders queue in
  // order.
  virtual Async<void> send(bool is_binary, std::string_view data) = 0;
  // Sends a close frame and waits (bounded) for the peer's. Does nothing on a closed connection.
  virtual Async<void> close(uint16_t code, std::string_view reason) = 0;
  // The code of the peer's close frame: 1005 when it had none, 1006 when there was no close frame.
  virtual uint16_t close_code() const = 0;
};

}  // namespace glovebox::http
