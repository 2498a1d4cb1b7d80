// SPDX-License-Identifier: Apache-2.0
#include "http/internal/connection.h"

#include <algorithm>
#include <ctime>
#include <exception>

#include "base/log.h"
#include "http/internal/exchange.h"

namespace glovebox::http::internal {
namespace {

constexpr size_t kHeadReadBytes = 4 << 10;
constexpr std::chrono::milliseconds kLingerTime = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kLingerSilence = std::chrono::seconds(3);  // a busy client may pause
constexpr size_t kLingerReadBytes = 64 << 10;
constexpr int kMaxEmptyLines = 2;  // before a request line; RFC 9112, 2.2 asks for at least one

// Takes the connection off the server's list however its coroutine ends.
class Listed {
 public:
  Listed(std::shared_ptr<ServerState> server, std::shared_ptr<ServerConnection> connection)
      : server_(std::move(server)), connection_(std::move(connection)) {}
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  ~Listed() {
    server_->connections.erase(connection_);
    server_->connection_closed.notify();
  }

 private:
  std::shared_ptr<ServerState> server_;
  std::shared_ptr<ServerConnection> connection_;
};

tl::unexpected<Refusal> refusal(int status, Code code, std::string message) {
  return tl::unexpected<Refusal>(Refusal{status, Error{code, std::move(message)}});
}

}  // namespace

const std::string& ServerState::date() {
  const time_t now = std::time(nullptr);
  if (now != date_second_) {
    struct tm tm;
    char text[40];
    ::gmtime_r(&now, &tm);
    date_.assign(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm));
    date_second_ = now;
  }
  return date_;
}

ServerConnection::ServerConnection(std::shared_ptr<ServerState> server, Socket socket,
                                   std::string peer)
    : server_(std::move(server)),
      transport(std::make_shared<Transport>(std::move(socket))),
      peer_(std::move(peer)) {}

Awaitable<void> ServerConnection::run() {
  const auto self = shared_from_this();
  const Listed listed(server_, self);
  bool again = true;
  while (again) again = co_await serve_one() && !server_->is_stopping;
  phase_ = Phase::kClosing;
  if (has_unread_) co_await linger();
  transport->cut();
}

Awaitable<void> ServerConnection::turn_away() {
  const auto self = shared_from_this();
  const Listed listed(server_, self);
  phase_ = Phase::kClosing;
  const size_t limit = server_->config.max_connections;
  Refusal full{503, Error{Code::kCapacity,
                          "the server has all the connections it may have",
                          {{"limit", std::to_string(limit)}}}};
  co_await refuse(std::move(full));
  co_await linger();
}

void ServerConnection::cut() {
  transport->cut();
  mark_gone();
}

void ServerConnection::mark_gone() {
  if (is_gone_) return;
  is_gone_ = true;
  gone_.notify();
  if (auto callback = std::exchange(on_gone_, nullptr)) callback();
}

Async<size_t> ServerConnection::fill(size_t size, Deadline deadline) {
  char* room = buffer_.prepare(size);
  GB_CO_TRY(const size_t n, co_await transport->read_some(room, size, deadline));
  buffer_.commit(n);
  co_return n;
}

void ServerConnection::skip_empty_lines() {
  for (int i = 0; i < kMaxEmptyLines && buffer_.view().starts_with("\r\n"); ++i) buffer_.consume(2);
}

Awaitable<Parsed<size_t>> ServerConnection::read_head() {
  const ServerConfig& config = server_->config;
  HeadScanner scanner(
      HeadLimits{config.max_header_bytes, config.max_target_bytes, config.max_header_count});
  bool has_begun = false;
  phase_ = Phase::kIdle;
  idle_since_ = Clock::now();
  Deadline deadline = idle_since_ + (is_first_ ? config.header_timeout : config.keep_alive_timeout);
  for (;;) {
    if (!has_begun) skip_empty_lines();
    if (!buffer_.empty()) {
      // From its first byte a head has a fixed time, whatever trickles in.
      if (!has_begun) deadline = after(config.header_timeout);
      has_begun = true;
      phase_ = Phase::kHead;
      auto length = scanner.scan(buffer_.view());
      if (!length || *length > 0) co_return length;
    }
    const auto got = co_await fill(kHeadReadBytes, deadline);
    if (!got && got.error().code == Code::kTimeout && has_begun) {
      co_return refusal(408, Code::kTimeout, "the head of the request did not arrive in time");
    }
    if (!got || *got == 0) co_return 0;
  }
}

Awaitable<bool> ServerConnection::serve_one() {
  const auto length = co_await read_head();
  if (length && *length == 0) co_return false;
  phase_ = Phase::kExchange;
  is_first_ = false;
  if (!length) {
    co_await refuse(length.error());
    co_return false;
  }
  Request request;
  request.peer = peer_;
  request.is_tls = server_->tls != nullptr;
  auto decoder = parse_request_head(buffer_.view().substr(0, *length), request);
  buffer_.consume(*length);
  if (decoder) {
    const auto expect = request.header("Expect");
    if (expect && !same_name(*expect, "100-continue")) {
      decoder = refusal(417, Code::kInvalidArgument, "only \"Expect: 100-continue\" is known");
    }
  }
  if (!decoder) {
    co_await refuse(std::move(decoder).error());
    co_return false;
  }
  co_return co_await serve(std::move(request), *std::move(decoder));
}

Awaitable<bool> ServerConnection::serve(Request request, std::unique_ptr<BodyDecoder> decoder) {
  ServerBody body(*this, *decoder, request);
  if (!body.is_done() && buffer_.empty()) transport->acknowledge();
  ServerResponse response(*this, body, request, decoder->keep_alive());
  ServerExchange exchange(*this, std::move(request), body, response);
  co_await call_handler(exchange);
  on_gone_ = nullptr;
  if (response.is_taken_over()) {
    has_unread_ = true;
    co_return false;
  }
  if (!response.head_sent()) {
    Error error{Code::kInternal, "the request was not answered"};
    co_await response.send_error(error);
  }
  if (!response.is_complete()) {
    response.abort();
    co_return false;
  }
  has_unread_ = !body.is_done();
  if (!response.keep_alive() || is_gone_) co_return false;
  if (!co_await body.drain()) co_return false;
  has_unread_ = false;
  buffer_.trim(16 << 10);
  co_return true;
}

Awaitable<void> ServerConnection::call_handler(Exchange& exchange) {
  try {
    co_await server_->handler(exchange);
  } catch (const std::exception& e) {
    log::error(
        "http.handler_failed",
        {{"method", exchange.request.method}, {"path", exchange.request.path}, {"what", e.what()}});
  }
}

Awaitable<void> ServerConnection::refuse(Refusal refusal) {
  log::debug("http.refused",
             {{"peer", peer_}, {"status", refusal.status}, {"why", refusal.error.message}});
  const std::string body = error_body(refusal.error);
  std::string head =
      "HTTP/1.1 " + std::to_string(refusal.status) + " " +
      std::string(reason_phrase(refusal.status)) +
      "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\nDate: " + server_->date() + "\r\nConnection: close\r\n";
  if (refusal.status == 503) head += "Retry-After: 1\r\n";
  has_unread_ = true;
  // When this fails the client has gone; the connection ends either way.
  (void)co_await transport->write(server_->config.write_idle_timeout, head, "\r\n", body);
}

// Closing a socket with unread input makes the kernel send a reset, which can destroy an answer
// that the client has not read yet. So: end our side, read on until the client has closed or fallen
// silent, for a while: a slow client may have much of its body on the way.
Awaitable<void> ServerConnection::linger() {
  transport->shutdown_write();
  buffer_.consume(buffer_.view().size());
  const Deadline deadline = after(kLingerTime);
  while (!transport->is_cut() && Clock::now() < deadline) {
    char* room = buffer_.prepare(kLingerReadBytes);
    const auto got = co_await transport->read_some(room, kLingerReadBytes, std::min(deadline, after(kLingerSilence)));
    if (!got || *got == 0) break;
  }
}

}  // namespace glovebox::http::internal
