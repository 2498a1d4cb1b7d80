// SPDX-License-Identifier: Apache-2.0
// The only file that instantiates Beast's WebSocket: one stream type for TCP and Unix sockets and
// both roles.
#include "http/websocket.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

#include "base/text.h"
#include "http/internal/websocket.h"

namespace glovebox::http::internal {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kMaxCloseReasonBytes =
    123;  // RFC 6455, 5.5: a control frame holds 125 bytes, 2 are the code
constexpr size_t kMaxRefusalBytes = 4 << 10;

// Reads bytes that were received earlier first, then the socket.
class PrefixedSocket {
 public:
  using executor_type = Socket::executor_type;
  using next_layer_type = Socket;

  explicit PrefixedSocket(Socket& socket) : socket_(socket) {}
  executor_type get_executor() { return socket_.get_executor(); }
  next_layer_type& next_layer() { return socket_; }
  const next_layer_type& next_layer() const { return socket_; }
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    auto start = [this](auto handler, const Buffers& to) {
      if (prefix_.empty()) return socket_.async_read_some(to, std::move(handler));
      const size_t n = asio::buffer_copy(to, asio::buffer(prefix_));
      prefix_.erase(0, n);
      asio::post(get_executor(),
                 beast::bind_front_handler(std::move(handler), beast::error_code(), n));
    };
    return asio::async_initiate<Token, void(beast::error_code, size_t)>(std::move(start), token,
                                                                        buffers);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

  // Beast's own would wait here until the peer closes, which a hostile one never does.
  // ServerConnection::linger() gives an honest one the time to read our close frame.
  template <class TeardownHandler>
  friend void async_teardown(beast::role_type, PrefixedSocket& stream, TeardownHandler&& handler) {
    beast::error_code ignored;
    stream.socket_.shutdown(Socket::shutdown_send, ignored);
    asio::post(
        stream.get_executor(),
        beast::bind_front_handler(std::forward<TeardownHandler>(handler), beast::error_code()));
  }

 private:
  Socket& socket_;
  std::string prefix_;
};

using WsStream = beast::websocket::stream<PrefixedSocket, false>;

Error failure(const beast::error_code& ec) {
  using beast::websocket::error;
  if (ec == error::closed) return Error{Code::kCancelled, "the WebSocket was closed"};
  if (ec == beast::error::timeout)
    return Error{Code::kTimeout, "the peer of the WebSocket fell silent"};
  if (ec == error::message_too_big || ec == error::buffer_overflow) {
    return Error{Code::kPayloadTooLarge, "the WebSocket message is too large"};
  }
  if (ec == beast::websocket::condition::protocol_violation) {
    return Error{Code::kInvalidArgument, "the peer broke the WebSocket protocol: " + ec.message()};
  }
  return Error{Code::kCancelled, "the WebSocket was lost: " + ec.message()};
}

class WebSocketImpl final : public WebSocket {
 public:
  WebSocketImpl(std::shared_ptr<Transport> transport, const WebSocketOptions& options)
      : transport_(std::move(transport)), ws_(transport_->socket()) {
    ws_.read_message_max(options.max_message_bytes);
    beast::websocket::stream_base::timeout timeout;
    timeout.handshake_timeout = options.handshake_timeout;
    timeout.idle_timeout = options.idle_timeout;
    timeout.keep_alive_pings = true;
    ws_.set_option(timeout);
    ws_.auto_fragment(false);
    ws_.write_buffer_bytes(64 << 10);
  }

  Async<void> accept(const Request& request, std::string received, std::string subprotocol);
  Async<void> connect(std::string host, std::string target, Headers headers,
                      std::string subprotocol);

  Async<Message> read() override;
  Async<void> send(bool is_binary, std::string_view data) override;
  Async<void> close(uint16_t code, std::string_view reason) override;
  uint16_t close_code() const override { return close_code_; }

 private:
  void note_close();

  std::shared_ptr<Transport> transport_;
  WsStream ws_;
  beast::flat_buffer input_;
  uint16_t close_code_ = 1006;
  // Senders take a ticket and go in its order.
  uint64_t next_ticket_ = 0, serving_ = 0;
  Notifier sent_;
};

Async<void> WebSocketImpl::accept(const Request& request, std::string received,
                                  std::string subprotocol) {
  beast::http::request<beast::http::empty_body> handshake;
  handshake.method(beast::http::verb::get);
  handshake.target({request.target.data(), request.target.size()});
  handshake.version(11);
  for (const auto& [name, value] : request.headers) {
    handshake.insert(beast::string_view(name.data(), name.size()),
                     beast::string_view(value.data(), value.size()));
  }
  ws_.next_layer().set_prefix(std::move(received));
  if (!subprotocol.empty()) {
    ws_.set_option(beast::websocket::stream_base::decorator(
        [subprotocol](beast::websocket::response_type& response) {
          response.set(beast::http::field::sec_websocket_protocol, subprotocol);
        }));
  }
  auto [ec] = co_await ws_.async_accept(handshake, kTuple);
  if (ec) co_return fail(failure(ec));
  co_return Result<void>();
}

Async<void> WebSocketImpl::connect(std::string host, std::string target, Headers headers,
                                   std::string subprotocol) {
  if (!subprotocol.empty()) headers.emplace_back("Sec-WebSocket-Protocol", subprotocol);
  ws_.set_option(
      beast::websocket::stream_base::decorator([headers](beast::websocket::request_type& request) {
        for (const auto& [name, value] : headers) request.insert(name, value);
      }));
  beast::websocket::response_type response;
  auto [ec] = co_await ws_.async_handshake(response, host, target, kTuple);
  if (!ec) co_return Result<void>();
  if (ec != beast::websocket::error::upgrade_declined)
    co_return fail(Code::kUnavailable, failure(ec).message);
  std::map<std::string, std::string> details{{"status", std::to_string(response.result_int())}};
  details["body"] = response.body().substr(0, kMaxRefusalBytes);
  co_return fail(Code::kUnavailable,
                 "the server refused the WebSocket with status " + details["status"], details);
}

void WebSocketImpl::note_close() {
  const uint16_t code = ws_.reason().code;
  close_code_ = code == 0 ? 1005 : code;
}

Async<WebSocket::Message> WebSocketImpl::read() {
  auto [ec, n] = co_await ws_.async_read(input_, kTuple);
  if (ec == beast::websocket::error::closed) note_close();
  if (ec) co_return fail(failure(ec));
  Message message;
  message.is_binary = ws_.got_binary();
  message.data = beast::buffers_to_string(input_.data());
  input_.consume(n);
  if (input_.capacity() > (64 << 10)) input_ = beast::flat_buffer();
  co_return message;
}

Async<void> WebSocketImpl::send(bool is_binary, std::string_view data) {
  const uint64_t ticket = next_ticket_++;
  while (serving_ != ticket) co_await sent_.wait();
  ws_.binary(is_binary);
  auto [ec, n] = co_await ws_.async_write(asio::buffer(data.data(), data.size()), kTuple);
  ++serving_;
  sent_.notify();
  if (ec) co_return fail(failure(ec));
  co_return Result<void>();
}

Async<void> WebSocketImpl::close(uint16_t code, std::string_view reason) {
  if (!ws_.is_open()) co_return Result<void>();
  beast::websocket::close_reason why(static_cast<beast::websocket::close_code>(code));
  const size_t length = std::min(reason.size(), kMaxCloseReasonBytes);
  const size_t whole = utf8_complete_prefix(reason.substr(0, length));
  why.reason.assign(reason.data(), whole);
  auto [ec] = co_await ws_.async_close(why, kTuple);
  if (!ec && close_code_ == 1006) note_close();
  if (ec && ec != beast::websocket::error::closed) co_return fail(failure(ec));
  co_return Result<void>();
}

}  // namespace

Result<void> check_handshake(const Request& request) {
  const auto bad = [](std::string what) {
    return fail(Code::kInvalidArgument, "not a WebSocket handshake: " + std::move(what));
  };
  if (request.method != "GET" || request.is_http10)
    return bad("the method is not GET, or the version below 1.1");
  if (!header_lists(request.headers, "Connection", "upgrade"))
    return bad("Connection does not say Upgrade");
  if (!header_lists(request.headers, "Upgrade", "websocket"))
    return bad("Upgrade does not say websocket");
  if (request.header("Sec-WebSocket-Version") != "13")
    return bad("Sec-WebSocket-Version is not 13");
  const auto key = request.header("Sec-WebSocket-Key");
  const auto nonce = key ? base64_decode(*key) : std::nullopt;
  if (!nonce || nonce->size() != 16) return bad("Sec-WebSocket-Key is not 16 bytes in base64");
  return {};
}

Async<std::unique_ptr<WebSocket>> accept_websocket(std::shared_ptr<Transport> transport,
                                                   const Request& request, std::string received,
                                                   WebSocketOptions options) {
  auto socket = std::make_unique<WebSocketImpl>(std::move(transport), options);
  GB_CO_TRYV(co_await socket->accept(request, std::move(received), options.subprotocol));
  co_return socket;
}

Async<std::unique_ptr<WebSocket>> open_websocket(std::shared_ptr<Transport> transport,
                                                 std::string host, std::string target,
                                                 Headers headers, WebSocketOptions options) {
  auto socket = std::make_unique<WebSocketImpl>(std::move(transport), options);
  GB_CO_TRYV(co_await socket->connect(std::move(host), std::move(target), std::move(headers),
                                      options.subprotocol));
  co_return socket;
}

}  // namespace glovebox::http::internal
