// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/async.h"
#include "http/framing.h"
#include "http/internal/tls.h"
#include "http/internal/transport.h"
#include "http/server.h"

namespace glovebox::http::internal {

class ServerConnection;

// What the connections of one server share; lives until the last of them is gone.
struct ServerState {
  Executor executor;
  ServerConfig config;
  Handler handler;
  std::unique_ptr<TlsIdentity> tls;  // null: plain
  size_t handshakes = 0;             // connections of TLS that are not in `connections` yet
  std::set<std::shared_ptr<ServerConnection>> connections;
  Notifier connection_closed;
  bool is_stopping = false;

  const std::string& date();  // for the Date header, made once a second

 private:
  int64_t date_second_ = -1;
  std::string date_;
};

// One accepted connection: reads requests one after the other and has each answered.
class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(std::shared_ptr<ServerState> server, Socket socket, std::string peer);

  Awaitable<void> run();  // to the end of the connection, then leaves server->connections
  // Answers 503 and closes, without reading a request.
  Awaitable<void> turn_away();

  bool is_idle() const { return phase_ == Phase::kIdle; }
  Deadline idle_since() const { return idle_since_; }
  bool in_exchange() const { return phase_ == Phase::kExchange && !is_gone_; }
  void cut();  // ends it now; a handler that runs sees its client gone
  void mark_gone();

 private:
  friend class ServerBody;
  friend class ServerResponse;
  friend class ServerExchange;
  enum class Phase { kIdle, kHead, kExchange, kClosing };

  Awaitable<Parsed<size_t>>
  read_head();  // the length of a complete head, 0 when the client has left
  void skip_empty_lines();
  Awaitable<bool> serve_one();  // true when another request may follow
  Awaitable<bool> serve(Request request, std::unique_ptr<BodyDecoder> decoder);
  Awaitable<void> call_handler(Exchange& exchange);
  Awaitable<void> refuse(Refusal refusal);
  Awaitable<void> linger();
  Async<size_t> fill(size_t size, Deadline deadline);  // receives into buffer_

  std::shared_ptr<ServerState> server_;

 public:
  const std::shared_ptr<Transport> transport;

 private:
  std::string peer_;
  InputBuffer buffer_;
  Phase phase_ = Phase::kIdle;
  Deadline idle_since_ = Clock::now();
  bool is_first_ = true;
  bool has_unread_ =
      false;  // the client may still be sending: closing at once could destroy our answer
  bool is_gone_ = false;
  Notifier gone_;
  std::function<void()> on_gone_;
};

}  // namespace glovebox::http::internal
