// SPDX-License-Identifier: Apache-2.0
#include "http/client.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <cstring>

#include "base/text.h"
#include "http/internal/listener.h"
#include "http/framing.h"
#include "http/internal/transport.h"
#include "http/internal/websocket.h"

namespace glovebox::http {
namespace asio = boost::asio;
namespace {

using internal::Ticker;
using internal::Transport;
using internal::TransportStream;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kTick{100};
constexpr size_t kHeadReadBytes = 16 << 10;
constexpr size_t kMaxReadBytes = 256 << 10;
constexpr int kMaxInterim = 8;  // 1xx responses before the real one

tl::unexpected<Error> unreachable(const Url& url, std::string why) {
  const std::string where = url.unix_path.empty() ? url.host_header() : url.unix_path;
  return fail(Code::kUnavailable, "cannot connect to " + where + ": " + std::move(why),
              {{"address", where}});
}

// A socket with the timer that ends its waits.
struct Link {
  Link(const Executor& executor, internal::Socket socket)
      : transport(std::make_shared<Transport>(std::move(socket))),
        ticker(executor, kTick, [t = transport.get()] { t->check(Clock::now()); }) {}
  std::shared_ptr<Transport> transport;
  Ticker ticker;
};

// Cancels `target` at `deadline`, as long as it lives.
template <class Target>
class CancelAt {
 public:
  CancelAt(const Executor& executor, Target& target, std::chrono::milliseconds after)
      : timer_(executor, after) {
    timer_.async_wait([&target, expired = expired_](const boost::system::error_code& ec) {
      if (ec || *expired) return;
      *expired = true;
      target.cancel();
    });
  }
  ~CancelAt() {
    *expired_ = true;  // the target may be gone before a wait that is due is delivered
    timer_.cancel();
  }

 private:
  std::shared_ptr<bool> expired_ = std::make_shared<bool>(false);
  asio::steady_timer timer_;
};

using Endpoints = std::vector<asio::generic::stream_protocol::endpoint>;

Async<Endpoints> resolve(const Executor& executor, const Url& url,
                         std::chrono::milliseconds timeout) {
  Endpoints out;
  if (!url.unix_path.empty()) {
    GB_CO_TRY(const auto address, internal::parse_address("unix:" + url.unix_path));
    out.emplace_back(address.get(), address.size);
    co_return out;
  }
  asio::ip::tcp::resolver resolver(executor);
  const CancelAt guard(executor, resolver, timeout);
  auto [ec, found] = co_await resolver.async_resolve(
      url.host, std::to_string(url.port), asio::ip::tcp::resolver::numeric_service, kTuple);
  if (ec) co_return unreachable(url, ec.message());
  for (const auto& entry : found) out.emplace_back(entry.endpoint());
  co_return out;
}

Async<internal::Socket> open_socket(const Url& url, std::chrono::milliseconds timeout) {
  const Executor executor = co_await asio::this_coro::executor;
  const Deadline deadline = after(timeout);
  GB_CO_TRY(const Endpoints endpoints, co_await resolve(executor, url, timeout));
  std::string why = "no address";
  for (const auto& endpoint : endpoints) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    internal::Socket socket(executor);
    boost::system::error_code ec;
    socket.open(endpoint.protocol(), ec);
    if (!ec) {
      const CancelAt guard(executor, socket, left);
      auto [failure] = co_await socket.async_connect(endpoint, kTuple);
      ec = failure;
    }
    if (!ec) co_return socket;
    why = ec == asio::error::operation_aborted ? "no answer in time" : ec.message();
  }
  co_return unreachable(url, why);
}

class ConnectionImpl final : public Connection {
 public:
  ConnectionImpl(std::unique_ptr<Link> link, std::unique_ptr<Stream> stream, std::string host,
                 ClientOptions options)
      : link_(std::move(link)),
        stream_(std::move(stream)),
        host_(std::move(host)),
        options_(options) {}
  ~ConnectionImpl() override { close(); }

  Async<void> start(std::string_view method, std::string_view target, Headers headers,
                    int64_t length) override;
  Async<void> write(std::string_view data) override;
  Async<ResponseHead> finish() override;
  Async<std::string> read_some(size_t max) override;
  bool reusable() const override { return state_ == State::kReady; }
  std::unique_ptr<Stream> take_stream() override;
  void close() override {
    if (stream_) stream_->close();
    state_ = State::kClosed;
  }

 private:
  enum class State { kReady, kSending, kReceiving, kClosed };
  Async<void> put(std::string_view data);
  Async<void> end_body();
  Async<ResponseHead> read_head();
  Async<size_t> fill(size_t size);
  void complete();
  Error broken(Error error);

  std::unique_ptr<Link> link_;
  std::unique_ptr<Stream> stream_;
  std::string host_;
  ClientOptions options_;
  internal::InputBuffer buffer_;
  std::unique_ptr<BodyDecoder> decoder_;
  State state_ = State::kReady;
  bool is_chunked_ = false, is_head_ = false, upload_failed_ = false, upload_complete_ = false;
  uint64_t remaining_ = 0;  // of the request's body
};

Async<void> ConnectionImpl::put(std::string_view data) {
  auto written = co_await stream_->write(data);
  if (written) co_return Result<void>();
  upload_failed_ = true;
  if (written.error().code == Code::kTimeout) co_return fail(written.error());
  co_return fail(Code::kUnavailable,
                 "the server closed the connection: " + written.error().message);
}

Async<void> ConnectionImpl::start(std::string_view method, std::string_view target, Headers headers,
                                  int64_t length) {
  if (state_ != State::kReady)
    co_return fail(Code::kUnavailable, "the connection cannot take another request");
  std::string head = std::string(method) + " " + std::string(target) + " HTTP/1.1\r\n";
  const bool is_clean = head.find_first_of(std::string_view("\r\n\0", 3)) == head.size() - 2 &&
                        std::count(head.begin(), head.end(), ' ') == 2;
  if (!is_clean)
    co_return fail(Code::kInvalidArgument, "method or target holds blanks or control characters");
  if (!find_header(headers, "Host")) head += "Host: " + host_ + "\r\n";
  for (const auto& [name, value] : headers) {
    if (!is_valid_header(name, value))
      co_return fail(Code::kInvalidArgument, "invalid header " + name);
    head += name + ": " + value + "\r\n";
  }
  is_chunked_ = length == kChunked;
  if (is_chunked_) head += "Transfer-Encoding: chunked\r\n";
  if (length >= 0) head += "Content-Length: " + std::to_string(length) + "\r\n";
  remaining_ = length > 0 ? static_cast<uint64_t>(length) : 0;
  is_head_ = method == "HEAD";
  upload_failed_ = upload_complete_ = false;
  decoder_.reset();
  state_ = State::kSending;
  head += "\r\n";
  co_return co_await put(head);
}

Async<void> ConnectionImpl::write(std::string_view data) {
  if (state_ != State::kSending)
    co_return fail(Code::kInternal, "write() outside of start() and finish()");
  if (data.empty()) co_return Result<void>();
  if (is_chunked_) {
    char size[20];
    char* end = std::to_chars(size, size + 16, data.size(), 16).ptr;
    GB_CO_TRYV(co_await put(std::string(size, end) + "\r\n"));
    GB_CO_TRYV(co_await put(data));
    co_return co_await put("\r\n");
  }
  if (data.size() > remaining_) co_return fail(Code::kInternal, "more bytes than the length said");
  remaining_ -= data.size();
  co_return co_await put(data);
}

Async<void> ConnectionImpl::end_body() {
  if (remaining_ > 0) co_return fail(Code::kInternal, "fewer bytes than the length said");
  upload_complete_ = true;
  if (is_chunked_) co_return co_await put("0\r\n\r\n");
  co_return Result<void>();
}

Error ConnectionImpl::broken(Error error) {
  close();
  return error;
}

Async<size_t> ConnectionImpl::fill(size_t size) {
  char* room = buffer_.prepare(size);
  GB_CO_TRY(const size_t n, co_await stream_->read_some(room, size));
  buffer_.commit(n);
  co_return n;
}

// Reads one head. Its bytes are consumed.
Async<ResponseHead> ConnectionImpl::read_head() {
  HeadScanner scanner(
      HeadLimits{options_.max_header_bytes, options_.max_header_bytes, 256});
  for (;;) {
    const auto length = scanner.scan(buffer_.view());
    if (!length)
      co_return fail(Code::kCorrupt, "malformed response: " + length.error().error.message);
    if (*length > 0) {
      ResponseHead head;
      GB_CO_TRY(decoder_,
                parse_response_head(buffer_.view().substr(0, *length), is_head_, head));
      buffer_.consume(*length);
      co_return head;
    }
    const auto got = co_await fill(kHeadReadBytes);
    if (!got && got.error().code == Code::kTimeout)
      co_return fail(Code::kTimeout, "the server did not answer in time");
    if (!got) co_return fail(Code::kUnavailable, "no response: " + got.error().message);
    if (*got == 0)
      co_return fail(Code::kUnavailable, "the server closed the connection before it answered");
  }
}

Async<ResponseHead> ConnectionImpl::finish() {
  if (state_ != State::kSending) co_return fail(Code::kInternal, "finish() without start()");
  if (!upload_failed_) {
    auto ended = co_await end_body();
    // A server that refuses a body early has often closed its side: its answer is still to be read.
    if (!ended && !upload_failed_) co_return fail(broken(ended.error()));
  }
  for (int i = 0; i <= kMaxInterim; ++i) {
    auto head = co_await read_head();
    if (!head) co_return fail(broken(head.error()));
    if (head->status / 100 == 1 && head->status != 101) continue;
    state_ = State::kReceiving;
    if (head->status != 101 && decoder_->is_done()) complete();
    co_return head;
  }
  co_return fail(broken(Error{Code::kCorrupt, "too many interim responses"}));
}

// The response has been read to its end.
void ConnectionImpl::complete() {
  const bool again = decoder_->keep_alive() && upload_complete_ && !upload_failed_;
  if (again) {
    state_ = State::kReady;
  } else {
    close();
  }
}

Async<std::string> ConnectionImpl::read_some(size_t max) {
  std::string out;
  if (!decoder_) co_return fail(Code::kInternal, "read_some() without finish()");
  if (decoder_->is_done()) co_return out;
  if (state_ != State::kReceiving) co_return fail(Code::kUnavailable, "the connection is closed");
  while (!decoder_->is_done() && max > 0) {
    const std::string_view have = buffer_.view();
    if (!have.empty()) {
      out.reserve(std::min(max, have.size()));
      auto used = decoder_->decode(have, out, max);
      if (!used) co_return fail(broken(Error{Code::kCorrupt, used.error().message}));
      buffer_.consume(*used);
      if (!out.empty() || decoder_->is_done()) break;
      if (*used > 0) continue;
    }
    const auto got = co_await fill(kMaxReadBytes);
    if (!got && got.error().code == Code::kTimeout) co_return fail(broken(got.error()));
    if (!got)
      co_return fail(
          broken(Error{Code::kCorrupt, "the response broke off: " + got.error().message}));
    if (*got > 0) continue;
    auto ended = decoder_->end_of_stream();
    if (!ended)
      co_return fail(broken(Error{Code::kCorrupt, "the response broke off before its end"}));
  }
  if (decoder_->is_done()) complete();
  co_return out;
}

std::unique_ptr<Stream> ConnectionImpl::take_stream() {
  // Bytes behind the 101 belong to the new protocol.
  class Taken final : public Stream {
   public:
    Taken(std::unique_ptr<Link> link, std::unique_ptr<Stream> stream, std::string prefix)
        : link_(std::move(link)), stream_(std::move(stream)), prefix_(std::move(prefix)) {}
    Async<size_t> read_some(char* data, size_t size) override {
      if (prefix_.empty()) co_return co_await stream_->read_some(data, size);
      const size_t n = std::min(size, prefix_.size());
      std::memcpy(data, prefix_.data(), n);
      prefix_.erase(0, n);
      co_return n;
    }
    Async<void> write(std::string_view data) override { return stream_->write(data); }
    void shutdown_write() override { stream_->shutdown_write(); }
    void close() override { stream_->close(); }

   private:
    std::unique_ptr<Link> link_;
    std::unique_ptr<Stream> stream_;
    std::string prefix_;
  };
  state_ = State::kClosed;
  return std::make_unique<Taken>(std::move(link_), std::move(stream_), std::string(buffer_.view()));
}

}  // namespace

std::string Url::host_header() const {
  const std::string name = host.find(':') == host.npos ? host : "[" + host + "]";
  return port == 80 || !unix_path.empty() ? name : name + ":" + std::to_string(port);
}

Result<Url> parse_url(std::string_view text) {
  const auto bad = [text](std::string why) {
    return fail(Code::kInvalidArgument, std::string(text) + ": " + why, {{"field", "url"}});
  };
  Url url;
  if (text.starts_with("unix:")) {
    url.host = "localhost";
    url.unix_path = text.substr(5);
    if (!url.unix_path.starts_with('/')) return bad("the path of the socket must be absolute");
    return url;
  }
  if (text.starts_with("https://") || text.starts_with("wss://"))
    return fail(Code::kUnsupported, "https is not supported; use http://");
  const size_t scheme = text.find("://");
  const std::string_view name = text.substr(0, std::min(scheme, text.size()));
  if (name != "http" && name != "ws") return bad("is not a URL; use http://host:port");
  std::string_view rest = text.substr(scheme + 3);
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, slash);
  if (slash < rest.size())
    url.target = (rest[slash] == '?' ? "/" : "") + std::string(rest.substr(slash));
  if (authority.find('@') != authority.npos) return bad("must not hold a user name");
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  if (bracket == authority.npos) return bad("the IPv6 address lacks its ']'");
  const size_t colon = authority.find(':', bracket);
  if (colon != authority.npos) {
    const auto port = parse_int(authority.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return bad("the port is not a number from 1 to 65535");
    url.port = static_cast<uint16_t>(*port);
    authority = authority.substr(0, colon);
  }
  if (bracket > 0) authority = authority.substr(1, bracket - 1);
  url.host = authority;
  const bool is_clean = !url.host.empty() && std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '#';
  });
  if (!is_clean) return bad("is not a URL; use http://host:port");
  return url;
}

Async<std::unique_ptr<Connection>> Connection::connect(Url url, ClientOptions options) {
  const Executor executor = co_await asio::this_coro::executor;
  GB_CO_TRY(auto socket, co_await open_socket(url, options.connect_timeout));
  auto link = std::make_unique<Link>(executor, std::move(socket));
  auto stream = std::make_unique<TransportStream>(link->transport, "", options.idle_timeout,
                                                  options.idle_timeout);
  co_return std::make_unique<ConnectionImpl>(std::move(link), std::move(stream), url.host_header(),
                                             options);
}

std::unique_ptr<Connection> Connection::over(std::unique_ptr<Stream> stream,
                                             std::string host_header, ClientOptions options) {
  return std::make_unique<ConnectionImpl>(nullptr, std::move(stream), std::move(host_header),
                                          options);
}

Async<Response> Connection::request(std::string_view method, std::string_view target,
                                    Headers headers, std::string body, size_t limit) {
  const bool takes_body = method != "GET" && method != "HEAD" && method != "DELETE";
  const int64_t length = body.empty() && !takes_body ? kNoBody : static_cast<int64_t>(body.size());
  GB_CO_TRYV(co_await start(method, target, std::move(headers), length));
  // A failure here shows again in finish(), unless the server has answered already.
  (void)co_await write(body);
  Response response;
  GB_CO_TRY(response.head, co_await finish());
  for (;;) {
    GB_CO_TRY(const std::string part, co_await read_some(kMaxReadBytes));
    if (part.empty()) co_return response;
    if (part.size() > limit - response.body.size()) {
      close();
      co_return fail(Code::kPayloadTooLarge,
                     "the response is larger than " + std::to_string(limit) + " bytes");
    }
    response.body += part;
  }
}

Async<std::unique_ptr<WebSocket>> connect_websocket(Url url, Headers headers,
                                                    WebSocketOptions options) {
  for (const auto& [name, value] : headers) {
    if (!is_valid_header(name, value))
      co_return fail(Code::kInvalidArgument, "invalid header " + name);
  }
  GB_CO_TRY(auto socket, co_await open_socket(url, options.handshake_timeout));
  auto transport = std::make_shared<Transport>(std::move(socket));
  co_return co_await internal::open_websocket(std::move(transport), url.host_header(), url.target,
                                              std::move(headers), std::move(options));
}

}  // namespace glovebox::http
