// SPDX-License-Identifier: Apache-2.0
#include "http/internal/exchange.h"

#include <poll.h>

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "base/text.h"
#include "http/internal/websocket.h"

namespace glovebox::http::internal {
namespace {

constexpr size_t kMaxReadBytes = 256 << 10;
constexpr std::chrono::milliseconds kDrainTime = std::chrono::seconds(5);

bool is_set_here(std::string_view name) {
  return same_name(name, "Connection") || same_name(name, "Transfer-Encoding");
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

constexpr size_t kMaxReasonBytes = 300;

std::string status_line(int status, std::string_view reason = {}) {
  return "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason.empty() ? reason_phrase(status) : reason) + "\r\n";
}

tl::unexpected<Error> misuse(std::string what) {
  return fail(Code::kInternal, "response: " + std::move(what));
}

}  // namespace

ServerBody::ServerBody(ServerConnection& connection, BodyDecoder& decoder, const Request& request)
    : connection_(connection),
      decoder_(decoder),
      remaining_(request.content_length),
      must_continue_(request.has_body && !request.is_http10 &&
                     request.header("Expect").has_value()) {}

Async<void> ServerBody::send_continue() {
  const bool is_wanted = must_continue_ && connection_.buffer_.empty() && !head_sent_;
  must_continue_ = false;
  if (!is_wanted) co_return Result<void>();
  co_return co_await connection_.transport->write(connection_.server_->config.write_idle_timeout,
                                                  "HTTP/1.1 100 Continue\r\n\r\n");
}

Async<void> ServerBody::receive(Deadline deadline) {
  const auto got = co_await connection_.fill(read_size_, deadline);
  if (!got && got.error().code == Code::kTimeout)
    co_return fail(Code::kTimeout, "the body of the request stopped arriving");
  if (!got || *got == 0) {
    connection_.mark_gone();
    co_return fail(Code::kCancelled, "the client went away before the end of its request");
  }
  if (*got == read_size_) read_size_ = std::min(read_size_ * 4, kMaxReadBytes);
  co_return Result<void>();
}

Async<std::string> ServerBody::read_some(size_t max) {
  if (failed_) co_return fail(*failed_);
  std::string out;
  while (!decoder_.is_done() && max > 0) {
    const std::string_view have = connection_.buffer_.view();
    if (!have.empty()) {
      out.reserve(std::min(max, have.size()));
      auto used = decoder_.decode(have, out, max);
      if (!used) {
        failed_ = used.error();
        co_return fail(*failed_);
      }
      connection_.buffer_.consume(*used);
      if (remaining_) *remaining_ -= out.size();
      if (!out.empty()) co_return out;
      if (*used > 0 || decoder_.is_done()) continue;
    }
    auto received = co_await send_continue();
    if (received) received = co_await receive(after(connection_.server_->config.body_idle_timeout));
    if (!received) {
      failed_ = received.error();
      co_return fail(*failed_);
    }
  }
  co_return out;
}

Async<std::string> ServerBody::read_all(size_t limit) {
  const auto too_large = [limit] {
    return fail(Code::kPayloadTooLarge,
                "the body is larger than " + std::to_string(limit) + " bytes",
                {{"limit", std::to_string(limit)}});
  };
  if (remaining_.value_or(0) > limit) co_return too_large();
  std::string all;
  for (;;) {
    GB_CO_TRY(std::string part, co_await read_some(kMaxReadBytes));
    if (part.empty()) co_return all;
    if (part.size() > limit - all.size()) co_return too_large();
    if (all.empty()) {
      all = std::move(part);
    } else {
      all += part;
    }
  }
}

bool ServerBody::is_drainable(bool is_read_out) {
  if (decoder_.is_done()) return true;
  if (failed_ || must_continue_) return false;
  if (!is_read_out) return true;
  if (remaining_) return *remaining_ <= connection_.server_->config.max_drain_bytes;
  // How long chunks go on is unknown, and their sender may wait for our answer first: only those
  // that are here count.
  return discard_received() && decoder_.is_done();
}

Result<void> ServerBody::discard_received() {
  while (!decoder_.is_done() && !connection_.buffer_.empty()) {
    std::string unused;
    GB_TRY(const size_t used, decoder_.decode(connection_.buffer_.view(), unused, kMaxReadBytes));
    connection_.buffer_.consume(used);
    if (used == 0) break;
  }
  return {};
}

Awaitable<bool> ServerBody::drain() {
  const Deadline deadline = after(kDrainTime);
  while (is_drainable(true) && discard_received() && !decoder_.is_done()) {
    const auto received = co_await receive(deadline);
    if (!received) break;
  }
  co_return decoder_.is_done();
}

ServerResponse::ServerResponse(ServerConnection& connection, ServerBody& body,
                               const Request& request, bool keep_alive)
    : connection_(connection),
      body_(body),
      is_head_(request.method == "HEAD"),
      is_http10_(request.is_http10),
      keep_alive_(keep_alive) {}

Result<std::string> ServerResponse::head(int status, const Headers& headers,
                                         std::string_view framing, bool is_whole) {
  if (state_ != State::kFresh) return misuse("a head was sent already");
  std::string out = status_line(status, reason_);
  bool has_date = false;
  for (const auto& [name, value] : headers) {
    if (!is_valid_header(name, value)) return misuse("invalid header " + name);
    if (is_set_here(name)) return misuse("header " + name + " is not the handler's");
    has_date = has_date || same_name(name, "Date");
    append_header(out, name, value);
  }
  keep_alive_ = keep_alive_ && framing_ != Framing::kUntilClose && body_.is_drainable(is_whole) &&
                !connection_.server_->is_stopping;
  if (!has_date) append_header(out, "Date", connection_.server_->date());
  if (!keep_alive_) out += "Connection: close\r\n";
  if (keep_alive_ && is_http10_) out += "Connection: keep-alive\r\n";
  out += framing;
  out += "\r\n";
  return out;
}

Async<void> ServerResponse::put(std::string_view a, std::string_view b, std::string_view c) {
  auto written = co_await connection_.transport->write(
      connection_.server_->config.write_idle_timeout, a, b, c);
  if (written) co_return Result<void>();
  state_ = State::kBroken;
  connection_.mark_gone();
  if (written.error().code == Code::kTimeout)
    co_return fail(Code::kTimeout, "the client stopped reading the response");
  co_return fail(Code::kCancelled, "the client went away before the end of the response");
}

Async<void> ServerResponse::send(int status, Headers headers, std::string body) {
  if (find_header(headers, "Content-Length"))
    co_return misuse("Content-Length is not the handler's in send()");
  framing_ = Framing::kLength;
  std::string framing;
  if (status != 204 && status >= 200)
    framing = "Content-Length: " + std::to_string(body.size()) + "\r\n";
  GB_CO_TRY(const std::string text, head(status, headers, framing, true));
  state_ = State::kComplete;
  body_.head_sent_ = true;
  co_return co_await put(text, omits_body(status) ? std::string_view() : body);
}

Async<void> ServerResponse::begin(int status, Headers headers) {
  std::string framing;
  if (const auto length = find_header(headers, "Content-Length")) {
    const auto number = parse_int(*length);
    if (!number || *number < 0) co_return misuse("Content-Length is not a number");
    framing_ = Framing::kLength;
    remaining_ = static_cast<uint64_t>(*number);
  } else if (omits_body(status)) {
    framing_ = Framing::kLength;
    if (is_head_ && !is_http10_)
      framing = "Transfer-Encoding: chunked\r\n";  // what GET would have said
  } else if (is_http10_) {
    framing_ = Framing::kUntilClose;
  } else {
    framing_ = Framing::kChunked;
    framing = "Transfer-Encoding: chunked\r\n";
  }
  GB_CO_TRY(const std::string text, head(status, headers, framing, false));
  state_ = State::kStreaming;
  discards_ = omits_body(status);
  body_.head_sent_ = true;
  co_return co_await put(text);
}

Async<void> ServerResponse::write(std::string_view data) {
  if (state_ == State::kBroken) co_return fail(Code::kCancelled, "the connection has ended");
  if (state_ != State::kStreaming) co_return misuse("write() outside of begin() and end()");
  if (data.empty() || discards_) co_return Result<void>();
  if (framing_ == Framing::kLength) {
    if (data.size() > remaining_) {
      abort();
      co_return misuse("more bytes than Content-Length said");
    }
    remaining_ -= data.size();
  }
  if (framing_ != Framing::kChunked) co_return co_await put(data);
  char size[20];
  char* end = std::to_chars(size, size + 16, data.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  co_return co_await put(std::string_view(size, static_cast<size_t>(end - size)), data, "\r\n");
}

Async<void> ServerResponse::end() {
  if (state_ == State::kBroken) co_return fail(Code::kCancelled, "the connection has ended");
  if (state_ != State::kStreaming) co_return misuse("end() without begin()");
  if (framing_ == Framing::kLength && remaining_ > 0 && !discards_) {
    abort();
    co_return misuse("fewer bytes than Content-Length said");
  }
  state_ = State::kComplete;
  if (framing_ == Framing::kChunked) co_return co_await put("0\r\n\r\n");
  co_return Result<void>();
}

void ServerResponse::set_reason(std::string_view phrase) {
  reason_ = phrase.substr(0, kMaxReasonBytes);
  std::replace_if(reason_.begin(), reason_.end(), [](char c) { return c < 0x20 || c > 0x7E; }, '?');
}

void ServerResponse::abort() {
  if (state_ == State::kComplete || state_ == State::kTakenOver) return;
  const bool needs_reset = state_ == State::kStreaming && framing_ == Framing::kUntilClose;
  state_ = State::kBroken;
  keep_alive_ = false;
  // Chunks and a Content-Length show by themselves that something is missing, and an orderly end
  // keeps what was sent. Where the end of the connection is the end of the body only a reset tells
  // the two apart.
  if (needs_reset) {
    connection_.transport->reset();
  } else {
    connection_.transport->cut();
  }
}

Async<void> ServerResponse::switch_head(int status, const Headers& headers) {
  if (state_ != State::kFresh) co_return misuse("a head was sent already");
  std::string text = status_line(status);
  for (const auto& [name, value] : headers) {
    if (!is_valid_header(name, value)) co_return misuse("invalid header " + name);
    append_header(text, name, value);
  }
  state_ = State::kTakenOver;
  co_return co_await put(text, "\r\n");
}

bool ServerExchange::client_gone() const {
  if (connection_.is_gone_) return true;
  pollfd client{connection_.transport->fd(), POLLRDHUP, 0};
  if (::poll(&client, 1, 0) > 0 && (client.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) connection_.mark_gone();
  return connection_.is_gone_;
}

void ServerExchange::on_client_gone(std::function<void()> callback) {
  if (connection_.is_gone_) return callback();
  connection_.on_gone_ = std::move(callback);
}

Awaitable<bool> ServerExchange::wait_client_gone(Deadline deadline) {
  if (!connection_.is_gone_) co_await connection_.gone_.wait_until(deadline);
  co_return connection_.is_gone_;
}

bool ServerExchange::wants_websocket() const {
  return header_lists(request.headers, "Connection", "upgrade") &&
         header_lists(request.headers, "Upgrade", "websocket");
}

std::string ServerExchange::take_received() {
  std::string received(connection_.buffer_.view());
  connection_.buffer_.consume(received.size());
  return received;
}

Async<std::unique_ptr<WebSocket>> ServerExchange::accept_websocket(WebSocketOptions options) {
  if (writer_.head_sent()) co_return misuse("a head was sent already");
  GB_CO_TRYV(check_handshake(request));
  writer_.taken_over();
  co_return co_await internal::accept_websocket(connection_.transport, request, take_received(),
                                                std::move(options));
}

Async<std::unique_ptr<Stream>> ServerExchange::switch_protocol(int status, Headers headers) {
  GB_CO_TRYV(co_await writer_.switch_head(status, headers));
  co_return std::make_unique<TransportStream>(connection_.transport, take_received(),
                                              std::chrono::milliseconds(0),
                                              connection_.server_->config.write_idle_timeout);
}

}  // namespace glovebox::http::internal

namespace glovebox::http {

Async<void> ResponseWriter::send_error(const Error& error, Headers headers, int status) {
  headers.emplace_back("Content-Type", "application/json");
  if (status == 0) status = info(error.code).http_status;
  if ((status == 429 || status == 503) && !find_header(headers, "Retry-After")) {
    const auto after = error.details.find("retry_after");
    headers.emplace_back("Retry-After", after == error.details.end() ? "1" : after->second);
  }
  std::string body = error_body(error);
  co_return co_await send(status, std::move(headers), std::move(body));
}

}  // namespace glovebox::http
