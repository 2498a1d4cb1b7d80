// SPDX-License-Identifier: Apache-2.0
#include "http/relay.h"

#include <algorithm>
#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <charconv>
#include <exception>

#include "base/log.h"
#include "http/framing.h"
#include "http/internal/transport.h"

namespace glovebox::http {
namespace asio = boost::asio;
namespace {

constexpr size_t kHeadReadBytes = 16 << 10;
constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kMaxResponseHeaders = 256;
constexpr int kMaxInterim = 8;  // 1xx responses before the real one

constexpr std::array<std::string_view, 11> kNotEndToEnd = {
    "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding",
    "Upgrade", "Content-Length", "Expect"};

// What the two directions of one exchange share. The upload may still run when the answer is complete.
struct Relay : std::enable_shared_from_this<Relay> {
  Relay(Exchange& e, std::shared_ptr<Stream> u, RelayOptions o) : exchange(e), upstream(std::move(u)), options(std::move(o)) {}

  Async<void> run(RelayRequest request);

 private:
  using Upload = Awaitable<void> (Relay::*)();
  Result<std::string> request_head(const RelayRequest& request) const;
  Awaitable<void> start(Upload upload);
  Awaitable<void> send_body();
  Async<void> send_piece(std::string_view piece);
  Awaitable<void> send_raw();
  Awaitable<void> join_upload();
  Async<void> respond();
  Async<ResponseHead> read_head();
  Async<size_t> fill();
  Async<void> pass_response(ResponseHead head);
  Async<void> pass_upgraded(ResponseHead head);
  Result<Headers> edited(const ResponseHead& head) const;

  Exchange& exchange;
  std::shared_ptr<Stream> upstream;
  RelayOptions options;
  bool is_chunked = false, wants_upgrade = false;
  std::string upgrade_to;

  internal::InputBuffer input;  // from the upstream
  std::unique_ptr<BodyDecoder> decoder;
  std::unique_ptr<Stream> raw_client;

  asio::cancellation_signal cancel_upload;
  bool is_uploading = false;
  std::optional<Error> upload_error;  // the client's fault; the upstream's shows when its answer is read
  Notifier upload_ended;
};

Result<std::string> Relay::request_head(const RelayRequest& request) const {
  std::string head = exchange.request.method + " " + request.target + " HTTP/1.1\r\n";
  for (const auto& [name, value] : request.headers) {
    if (!is_valid_header(name, value)) return fail(Code::kInvalidArgument, "invalid header " + name);
    head += name + ": " + value + "\r\n";
  }
  if (is_chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (exchange.request.content_length) {
    head += "Content-Length: " + std::to_string(*exchange.request.content_length) + "\r\n";
  }
  head += wants_upgrade ? "Connection: Upgrade\r\nUpgrade: " + upgrade_to + "\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

Awaitable<void> Relay::start(Upload upload) {
  is_uploading = true;
  const auto executor = co_await asio::this_coro::executor;
  auto ended = [self = shared_from_this()](const std::exception_ptr& failure) {
    if (failure) {
      self->upload_error = Error{Code::kInternal, "the request's body could not be passed on"};
      self->upstream->close();
    }
    self->is_uploading = false;
    self->upload_ended.notify();
  };
  asio::co_spawn(executor, (this->*upload)(), asio::bind_cancellation_slot(cancel_upload.slot(), std::move(ended)));
}

Awaitable<void> Relay::join_upload() {
  while (is_uploading) {
    upstream->close();
    cancel_upload.emit(asio::cancellation_type::terminal);
    co_await upload_ended.wait_until(after(std::chrono::milliseconds(100)));
  }
}

Async<void> Relay::send_piece(std::string_view piece) {
  if (!is_chunked) co_return co_await upstream->write(piece);
  char size[20];
  char* end = std::to_chars(size, size + 16, piece.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  GB_CO_TRYV(co_await upstream->write(std::string_view(size, static_cast<size_t>(end - size))));
  GB_CO_TRYV(co_await upstream->write(piece));
  co_return co_await upstream->write("\r\n");
}

// A server that refuses a body early stops to take it: its answer is still to be read, so that is no error here.
Awaitable<void> Relay::send_body() {
  co_await asio::this_coro::throw_if_cancelled(false);
  while (true) {
    const auto piece = co_await exchange.body.read_some(kPieceBytes);
    if (!piece) {
      upload_error = piece.error();
      upstream->close();
      co_return;
    }
    if (piece->empty()) break;
    if (!co_await send_piece(*piece)) co_return;
  }
  if (is_chunked) (void)co_await upstream->write("0\r\n\r\n");
}

Awaitable<void> Relay::send_raw() {
  co_await asio::this_coro::throw_if_cancelled(false);
  const auto buffer = std::make_unique_for_overwrite<char[]>(kPieceBytes);
  while (true) {
    const auto got = co_await raw_client->read_some(buffer.get(), kPieceBytes);
    if (!got || *got == 0) break;
    if (!co_await upstream->write(std::string_view(buffer.get(), *got))) co_return;
  }
  upstream->shutdown_write();
}

Async<size_t> Relay::fill() {
  char* room = input.prepare(kHeadReadBytes);
  GB_CO_TRY(const size_t n, co_await upstream->read_some(room, kHeadReadBytes));
  input.commit(n);
  co_return n;
}

Async<ResponseHead> Relay::read_head() {
  HeadScanner scanner(HeadLimits{options.max_head_bytes, options.max_head_bytes, kMaxResponseHeaders});
  while (true) {
    const auto length = scanner.scan(input.view());
    if (!length) co_return fail(Code::kCorrupt, "malformed response: " + length.error().error.message);
    if (*length > 0) {
      ResponseHead head;
      GB_CO_TRY(decoder, parse_response_head(input.view().substr(0, *length), exchange.request.method == "HEAD", head));
      input.consume(*length);
      co_return head;
    }
    const auto got = co_await fill();
    if (!got) co_return fail(got.error());
    if (*got == 0) co_return fail(Code::kUnavailable, "the server closed the connection before it answered");
  }
}

Async<void> Relay::respond() {
  for (int i = 0; i <= kMaxInterim; ++i) {
    GB_CO_TRY(auto head, co_await read_head());
    if (head.status == 101 && wants_upgrade) co_return co_await pass_upgraded(std::move(head));
    if (head.status == 101) co_return fail(Code::kCorrupt, "the server switched protocols without being asked");
    if (head.status >= 200 && head.status <= 999) co_return co_await pass_response(std::move(head));
    if (head.status < 100) co_return fail(Code::kCorrupt, "the response has no possible status");
  }
  co_return fail(Code::kCorrupt, "too many interim responses");
}

Result<Headers> Relay::edited(const ResponseHead& head) const {
  Headers headers = end_to_end(head.headers);
  if (options.edit) options.edit(head.status, headers);
  for (const auto& [name, value] : headers) {
    if (!is_valid_header(name, value)) return fail(Code::kCorrupt, "the response has an invalid header");
  }
  return headers;
}

Async<void> Relay::pass_response(ResponseHead head) {
  GB_CO_TRY(auto headers, edited(head));
  const bool is_chunked_response = find_header(head.headers, "Transfer-Encoding").has_value();
  if (head.content_length && !is_chunked_response && head.status != 204) {
    headers.emplace_back("Content-Length", std::to_string(*head.content_length));
  }
  GB_CO_TRYV(co_await exchange.response.begin(head.status, std::move(headers)));
  std::string piece;
  while (!decoder->is_done()) {
    piece.clear();
    auto used = decoder->decode(input.view(), piece, kPieceBytes);
    if (!used) co_return fail(Code::kCorrupt, used.error().message);
    input.consume(*used);
    if (!piece.empty()) GB_CO_TRYV(co_await exchange.response.write(piece));
    if (decoder->is_done() || *used > 0) continue;
    const auto got = co_await fill();
    if (!got) co_return fail(got.error());
    if (*got > 0) continue;
    const auto ended = decoder->end_of_stream();
    if (!ended) co_return fail(Code::kCorrupt, "the response broke off before its end");
  }
  co_return co_await exchange.response.end();
}

Async<void> Relay::pass_upgraded(ResponseHead head) {
  GB_CO_TRY(auto headers, edited(head));
  headers.emplace_back("Connection", "Upgrade");
  headers.emplace_back("Upgrade", find_header(head.headers, "Upgrade").value_or(upgrade_to));
  GB_CO_TRY(raw_client, co_await exchange.switch_protocol(101, std::move(headers)));
  co_await start(&Relay::send_raw);
  while (true) {
    if (!input.empty()) {
      GB_CO_TRYV(co_await raw_client->write(input.view()));
      input.consume(input.view().size());
    }
    GB_CO_TRY(const size_t got, co_await fill());
    if (got == 0) co_return Result<void>();
  }
}

Async<void> Relay::run(RelayRequest request) {
  const auto self = shared_from_this();
  const Request& asked = exchange.request;
  is_chunked = asked.has_body && !asked.content_length;
  const auto upgrade = asked.header("Upgrade");
  wants_upgrade = upgrade && !asked.has_body && !asked.is_http10 && header_lists(asked.headers, "Connection", "upgrade");
  upgrade_to = upgrade.value_or("");
  GB_CO_TRY(const std::string head, request_head(request));
  exchange.on_client_gone([weak = weak_from_this()] {
    if (const auto relay = weak.lock()) relay->upstream->close();
  });
  Result<void> done = fail(Code::kInternal, "the response could not be passed on");
  try {
    done = co_await upstream->write(head);
    if (done && asked.has_body) co_await start(&Relay::send_body);
    if (done) done = co_await respond();
  } catch (const std::exception& e) {
    log::error("http.relay_failed", {{"what", e.what()}});
  }
  co_await join_upload();
  upstream->close();
  if (!done && exchange.client_gone()) co_return fail(Code::kCancelled, "the client went away");
  if (!done && upload_error) co_return fail(*upload_error);
  if (!done && exchange.response.head_sent()) exchange.response.abort();
  co_return done;
}

}  // namespace

Headers end_to_end(const Headers& headers) {
  Headers out;
  for (const auto& header : headers) {
    const auto is_same = [&](std::string_view name) { return same_name(name, header.first); };
    if (std::any_of(kNotEndToEnd.begin(), kNotEndToEnd.end(), is_same) || header_lists(headers, "Connection", header.first)) continue;
    out.push_back(header);
  }
  return out;
}

Async<void> relay(Exchange& exchange, std::shared_ptr<Stream> upstream, RelayRequest request, RelayOptions options) {
  const auto state = std::make_shared<Relay>(exchange, std::move(upstream), std::move(options));
  co_return co_await state->run(std::move(request));
}

}  // namespace glovebox::http
