// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/async.h"
#include "http/message.h"
#include "http/stream.h"
#include "http/websocket.h"

namespace glovebox::http {

// "http://host:port/prefix" (the port defaults to 80) or "unix:/path". https is kUnsupported.
struct Url {
  std::string host;  // without brackets; "localhost" for a Unix socket
  uint16_t port = 80;
  std::string unix_path;     // when not empty, the socket to connect to
  std::string target = "/";  // path and query
  std::string host_header() const;
};
Result<Url> parse_url(std::string_view text);

struct ClientOptions {
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  // No byte in either direction for this long while a call waits: kTimeout. Streams that may be
  // silent (logs) raise it.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(120);
  size_t max_header_bytes = 64 << 10;
};

struct ResponseHead {
  int status = 0;
  Headers headers;
  std::optional<uint64_t> content_length;
  std::optional<std::string> header(std::string_view name) const {
    return find_header(headers, name);
  }
};

struct Response {
  ResponseHead head;
  std::string body;
};

// One connection to a server; requests follow each other on it. One coroutine at a time. Errors:
// kUnavailable (cannot connect, or the connection was lost before a response began), kTimeout,
// kCorrupt (the response breaks HTTP, or ended before its end), kPayloadTooLarge. A non-2xx status
// is not an error here.
class Connection {
 public:
  static Async<std::unique_ptr<Connection>> connect(Url url, ClientOptions options = {});
  // Speaks HTTP over a stream that is already there. Timeouts are then the stream's business.
  static std::unique_ptr<Connection> over(std::unique_ptr<Stream> stream, std::string host_header,
                                          ClientOptions options = {});
  virtual ~Connection() = default;

  // A whole call. `limit` bounds the body of the response.
  Async<Response> request(std::string_view method, std::string_view target, Headers headers = {},
                          std::string body = {}, size_t limit = 64 << 20);

  // The same in steps: start, write… (only with a body), finish, read_some… until empty.
  // With `length` the body is that long; kChunked sends chunks until finish(); kNoBody: none.
  static constexpr int64_t kChunked = -1;
  static constexpr int64_t kNoBody = -2;
  virtual Async<void> start(std::string_view method, std::string_view target, Headers headers,
                            int64_t length) = 0;
  // A server that answers early and closes makes this fail; finish() then still gives its answer.
  virtual Async<void> write(std::string_view data) = 0;
  // Ends the body and reads the head of the response; 1xx are skipped (101 is returned).
  virtual Async<ResponseHead> finish() = 0;
  // 1 … max bytes of the response, or an empty string at its proper end. kCorrupt when the stream
  // broke off.
  virtual Async<std::string> read_some(size_t max = 256 << 10) = 0;

  // True between calls while the connection can take another request.
  virtual bool reusable() const = 0;
  // After a 101: the raw bytes, those already received included. The connection is of no further
  // use.
  virtual std::unique_ptr<Stream> take_stream() = 0;
  virtual void close() = 0;
};

// A WebSocket to `url` (ws:// and http:// are the same). A refused handshake is kUnavailable with
// details.status and details.body (its first 4 KiB).
Async<std::unique_ptr<WebSocket>> connect_websocket(Url url, Headers headers = {},
                                                    WebSocketOptions options = {});

}  // namespace glovebox::http
