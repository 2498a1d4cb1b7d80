// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "http/internal/connection.h"

namespace glovebox::http::internal {

class ServerBody final : public BodyReader {
 public:
  ServerBody(ServerConnection& connection, BodyDecoder& decoder, const Request& request);
  Async<std::string> read_some(size_t max) override;
  Async<std::string> read_all(size_t limit) override;

  bool is_done() const { return decoder_.is_done(); }
  // Whether the next request can be found behind this body, as far as is known when a head is sent.
  // With `is_read_out` nobody reads the body after this, so what is here is skipped; otherwise the
  // handler may read while it answers.
  bool is_drainable(bool is_read_out);
  // Reads what the handler left; true when the next request starts behind it.
  Awaitable<bool> drain();

 private:
  friend class ServerResponse;
  Async<void> send_continue();
  Async<void> receive(Deadline deadline);
  Result<void> discard_received();

  ServerConnection& connection_;
  BodyDecoder& decoder_;
  std::optional<uint64_t> remaining_;  // of a Content-Length
  bool must_continue_;                 // the client waits for "100 Continue"
  bool head_sent_ = false;             // of the response: too late for that
  size_t read_size_ = 16 << 10;        // grows while the client fills it
  std::optional<Error> failed_;
};

class ServerResponse final : public ResponseWriter {
 public:
  ServerResponse(ServerConnection& connection, ServerBody& body, const Request& request,
                 bool keep_alive);
  Async<void> send(int status, Headers headers, std::string body) override;
  Async<void> begin(int status, Headers headers) override;
  Async<void> write(std::string_view data) override;
  Async<void> end() override;
  void abort() override;
  bool head_sent() const override { return state_ != State::kFresh; }
  void set_reason(std::string_view phrase) override;

  bool is_complete() const { return state_ == State::kComplete; }
  bool keep_alive() const { return keep_alive_; }
  // Sends a head as it is, for a protocol that follows.
  Async<void> switch_head(int status, const Headers& headers);
  void taken_over() { state_ = State::kTakenOver; }
  bool is_taken_over() const { return state_ == State::kTakenOver; }

 private:
  enum class State { kFresh, kStreaming, kComplete, kBroken, kTakenOver };
  enum class Framing { kLength, kChunked, kUntilClose };

  Result<std::string> head(int status, const Headers& headers, std::string_view framing,
                           bool is_whole);
  Async<void> put(std::string_view a, std::string_view b = {}, std::string_view c = {});
  bool omits_body(int status) const { return is_head_ || status == 204 || status == 304; }

  ServerConnection& connection_;
  ServerBody& body_;
  State state_ = State::kFresh;
  Framing framing_ = Framing::kChunked;
  uint64_t remaining_ = 0;  // for kLength
  bool discards_ = false;   // the answer to HEAD: the body is counted, not sent
  const bool is_head_, is_http10_;
  bool keep_alive_;
  std::string reason_;  // empty: the standard phrase
};

class ServerExchange final : public Exchange {
 public:
  ServerExchange(ServerConnection& connection, Request r, ServerBody& b, ServerResponse& w)
      : Exchange(std::move(r), b, w), connection_(connection), writer_(w) {}
  bool client_gone() const override;
  void on_client_gone(std::function<void()> callback) override;
  Awaitable<bool> wait_client_gone(Deadline deadline) override;
  bool wants_websocket() const override;
  Async<std::unique_ptr<WebSocket>> accept_websocket(WebSocketOptions options) override;
  Async<std::unique_ptr<Stream>> switch_protocol(int status, Headers headers) override;

 private:
  std::string take_received();  // what came behind the head

  ServerConnection& connection_;
  ServerResponse& writer_;
};

}  // namespace glovebox::http::internal
