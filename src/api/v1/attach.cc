// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;
using sandbox::Chunk;
using sandbox::ExecutionPtr;
namespace {

constexpr std::chrono::milliseconds kLookForClient{500};
constexpr uint64_t kCursorEvery = 1 << 20;  // bytes between two cursor messages

// What the two directions of one attachment share; lives until both have ended.
struct Attachment {
  std::unique_ptr<http::WebSocket> socket;
  ExecutionPtr execution;
  bool client_left = false;
  bool reader_ended = false;
  Notifier changed;
};

std::string message_of(std::string_view type, bj::value content, std::string_view name) {
  return json::to_text(bj::object{{"type", type}, {bj::string_view(name.data(), name.size()), std::move(content)}});
}

Async<void> handle_text(Attachment& a, const std::string& text) {
  GB_CO_TRY(const auto value, json::parse_object(text));
  json::Reader r(value);
  GB_CO_TRY(const auto type, r.one_of("type", {"resize", "signal"}).required());
  if (type == "resize") {
    GB_CO_TRY(const auto cols, r.integer("cols", 1, 65535).required());
    GB_CO_TRY(const auto rows, r.integer("rows", 1, 65535).required());
    GB_CO_TRYV(r.done());
    co_return co_await a.execution->resize(static_cast<int>(cols), static_cast<int>(rows));
  }
  GB_CO_TRY(const int number, parse_signal(r, "signal"));
  GB_CO_TRYV(r.done());
  co_return co_await a.execution->signal(number, true);
}

Async<void> handle(Attachment& a, http::WebSocket::Message& message) {
  if (!message.is_binary) co_return co_await handle_text(a, message.data);
  if (message.data.empty() || message.data[0] != 0) {
    co_return fail(Code::kInvalidArgument, "binary frames from a client start with a 0 byte and are standard input");
  }
  if (message.data.size() == 1) co_return co_await a.execution->close_stdin();
  co_return co_await a.execution->write_stdin(message.data.substr(1));
}

Awaitable<void> read_client(std::shared_ptr<Attachment> a) {
  while (true) {
    auto message = co_await a->socket->read();
    if (!message) break;
    auto handled = co_await handle(*a, *message);
    if (handled) continue;
    // The connection stays: a signal that comes too late is no reason to lose the output.
    bj::value error = bj::parse(http::error_body(handled.error())).at("error");
    auto told = co_await a->socket->send(false, message_of("error", std::move(error), "error"));
    if (!told) break;
  }
  a->client_left = a->reader_ended = true;
  a->changed.notify();
}

Async<void> write_output(Attachment& a, uint64_t cursor) {
  uint64_t told_cursor = cursor;
  while (!a.client_left) {
    const bool ended = a.execution->ended();
    GB_CO_TRY(const auto chunks, co_await a.execution->read(cursor, kPieceBytes));
    for (const Chunk& chunk : chunks) {
      std::string frame(1, chunk.stream == sandbox::Stream::kStdout ? '\1' : '\2');
      GB_CO_TRYV(co_await a.socket->send(true, frame + chunk.data));
      cursor = chunk.cursor + chunk.data.size();
    }
    if (cursor - told_cursor >= kCursorEvery) {
      told_cursor = cursor;
      GB_CO_TRYV(co_await a.socket->send(false, message_of("cursor", cursor, "cursor")));
    }
    if (!chunks.empty()) continue;
    if (ended) break;
    co_await a.execution->wait_output(cursor, after(kLookForClient));
  }
  if (a.client_left) co_return Result<void>();
  GB_CO_TRYV(co_await a.socket->send(false, message_of("exit", view(a.execution->info()), "execution")));
  co_return co_await a.socket->close(1000, "");
}

}  // namespace

Async<void> attach(Call& call, ExecutionPtr execution, uint64_t cursor) {
  auto a = std::make_shared<Attachment>();
  a->execution = std::move(execution);
  http::WebSocketOptions options;
  options.max_message_bytes = 1 << 20;
  GB_CO_TRY(a->socket, co_await call.exchange.accept_websocket(options));
  GB_CO_TRYV(co_await a->socket->send(false, message_of("started", view(a->execution->info()), "execution")));
  spawn(co_await this_executor(), "attach.read", read_client(a));
  auto written = co_await write_output(*a, cursor);
  if (!written) (void)co_await a->socket->close(1011, info(written.error().code).name);
  // The socket must not outlive this handler: the reader ends soon after the close.
  while (!a->reader_ended) co_await a->changed.wait();
  co_return Result<void>();
}

}  // namespace glovebox::api::v1
