// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/async.h"
#include "http/message.h"
#include "http/stream.h"
#include "http/websocket.h"

// HTTP/1.1 server. Everything runs on the executor's thread: no locks, one coroutine a connection.
// The order of use in a handler: look at `request`, read `body` (or not), then answer with
// `response` once, or take the connection over.
namespace glovebox::http {

// The body of one request, decoded from Content-Length or chunked framing. The first read answers
// "Expect: 100-continue".
class BodyReader {
 public:
  virtual ~BodyReader() = default;
  // 1 … max bytes, or an empty string at the end of the body. Errors: kInvalidArgument (broken
  // framing), kTimeout (the client sent nothing for body_idle_timeout), kCancelled (the client went
  // away mid body).
  virtual Async<std::string> read_some(size_t max = 256 << 10) = 0;
  // The rest of the body; kPayloadTooLarge when it is longer than `limit` (known at once from a
  // Content-Length).
  virtual Async<std::string> read_all(size_t limit) = 0;
};

// The response of one request. One coroutine at a time. Errors: kCancelled when the client went
// away, kTimeout when it took nothing for write_idle_timeout, kInternal for a wrong use; after an
// error the connection is not used again. Headers must not name Connection, Transfer-Encoding or
// (with send) Content-Length: those are set here. Date is added unless it is named.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // A whole response. HEAD, 204 and 304 leave the body out.
  virtual Async<void> send(int status, Headers headers, std::string body) = 0;
  // A streamed response: chunked, or as long as a Content-Length among `headers` says. HTTP/1.0
  // clients get the bytes until the connection closes. Then write()s and one end(). A handler that
  // returns without end() aborts.
  virtual Async<void> begin(int status, Headers headers) = 0;
  // Returns when the kernel has taken the bytes, so at most one piece is buffered here; a slow
  // reader suspends the caller.
  virtual Async<void> write(std::string_view data) = 0;
  virtual Async<void> end() = 0;
  // Drops the connection without the final chunk: the client sees a broken stream, never a short
  // one that looks whole.
  virtual void abort() = 0;
  virtual bool head_sent() const = 0;
  // The reason phrase of the status line, instead of the standard one: some clients (pip) show their user that and nothing of
  // the body. Before the head is sent. Control characters and what is not ASCII become '?'; longer than 300 bytes is cut.
  virtual void set_reason(std::string_view phrase) = 0;

  // send() with error_body(error) and the status of its code (or `status`, when it is not 0). Adds
  // Retry-After where the code's advice speaks of it: details["retry_after"] in seconds, else 1.
  Async<void> send_error(const Error& error, Headers headers = {}, int status = 0);
};

// One request with its answer. Lives as long as the handler runs.
class Exchange {
 public:
  Exchange(Request r, BodyReader& b, ResponseWriter& w)
      : request(std::move(r)), body(b), response(w) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Request request;
  BodyReader& body;
  ResponseWriter& response;

  // True once the client has closed or reset the connection, or the server cut it: as of now. The two calls below
  // are told within 200 ms. A client that half-closes after its request counts as gone.
  virtual bool client_gone() const = 0;
  // Calls `callback` on the loop when that happens (at once if it has); at most one, never after
  // the handler returned.
  virtual void on_client_gone(std::function<void()> callback) = 0;
  // True when it happened, false at the deadline.
  virtual Awaitable<bool> wait_client_gone(Deadline deadline) = 0;

  // True when the request asks for a WebSocket (Upgrade: websocket).
  virtual bool wants_websocket() const = 0;
  // Answers the handshake with 101; kInvalidArgument when the request is no valid handshake (then
  // nothing was sent and an ordinary answer is still possible). The WebSocket must not outlive the
  // handler.
  virtual Async<std::unique_ptr<WebSocket>> accept_websocket(WebSocketOptions options = {}) = 0;
  // Takes the connection's bytes over, for a protocol that follows a 101 or CONNECT: sends the
  // head, after which both directions belong to the caller. The stream must not outlive the
  // handler.
  virtual Async<std::unique_ptr<Stream>> switch_protocol(int status, Headers headers) = 0;
};

// Never called for a request that is malformed or over a limit. An exception that escapes is logged
// and answered with 500; so is a return without an answer.
using Handler = std::function<Awaitable<void>(Exchange&)>;

struct ServerConfig {
  // "127.0.0.1:7070", "[::1]:7070", "localhost:0" (port 0: the kernel chooses) or
  // "unix:/run/glovebox.sock".
  std::string listen = "127.0.0.1:7070";
  int unix_mode = 0600;  // of the socket file
  // PEM files; when given, TLS is spoken. They are read again when they change.
  std::string tls_cert, tls_key;
  size_t max_connections =
      4096;  // above it the longest idle one is closed, or else the new one answered with 503
  size_t max_header_bytes = 32 << 10;  // request line and headers; 431
  size_t max_header_count = 100;       // 431
  size_t max_target_bytes = 16 << 10;  // 414
  std::chrono::milliseconds header_timeout =
      std::chrono::seconds(10);  // absolute, from the first byte; 408
  std::chrono::milliseconds keep_alive_timeout = std::chrono::seconds(75);
  std::chrono::milliseconds body_idle_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds write_idle_timeout =
      std::chrono::seconds(120);  // a reader that takes nothing is dropped
  std::chrono::milliseconds sweep_interval =
      std::chrono::milliseconds(200);  // precision of all timeouts
  size_t max_drain_bytes =
      256 << 10;  // of a body the handler left unread; beyond it the connection closes
};

class Server {
 public:
  // Binds and starts to accept. kInvalidArgument for an address that does not parse or a certificate that cannot be used, kAlreadyExists
  // when it is in use.
  static Result<std::unique_ptr<Server>> listen(Executor executor, ServerConfig config,
                                                Handler handler);
  virtual ~Server() = default;        // cuts what is left; handlers still running get kCancelled
  virtual uint16_t port() const = 0;  // 0 for a Unix socket
  virtual std::string address() const = 0;  // "127.0.0.1:7070" as bound
  virtual size_t connections() const = 0;
  // Stops accepting, closes idle connections, lets requests under way finish with "Connection:
  // close" until `deadline`, then cuts them. Returns when every handler has returned (or, with a
  // handler that ignores being cut, 2 s after the deadline).
  virtual Awaitable<void> stop(Deadline deadline) = 0;
};

}  // namespace glovebox::http
