// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/execution_stream.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/object.hpp>

#include "http/json.h"
#include "programs/glovebox/fields.h"

namespace glovebox::cli {
namespace {

constexpr int kMaxAttempts = 8;  // 0.1 s, doubled: about 25 s in all
constexpr auto kForever = std::chrono::hours(24 * 365);

bool is_broken_connection(Code code) {
  return code == Code::kCancelled || code == Code::kTimeout || code == Code::kUnavailable ||
         code == Code::kCorrupt;
}

}  // namespace

StdinMode choose_stdin(int fd, bool wanted, bool by_default) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return StdinMode::kNone;
  if (::isatty(fd) == 1) return wanted ? StdinMode::kTerminal : StdinMode::kNone;
  return wanted || by_default ? StdinMode::kPipe : StdinMode::kNone;
}

ExecutionStream::ExecutionStream(Loop& loop, const ApiClient& api, std::string sandbox,
                                 std::string execution)
    : loop_(loop), api_(api), sandbox_(std::move(sandbox)), execution_(std::move(execution)) {}

Async<boost::json::value> ExecutionStream::follow(OutputSink sink) {
  auto self = shared_from_this();
  for (int attempt = 0;;) {
    made_progress_ = false;
    auto result = co_await follow_once(sink);
    socket_.reset();
    connected_.notify();
    if (stdin_error_) co_return fail(*stdin_error_);
    if (result) co_return std::move(result);
    attempt = made_progress_ ? 0 : attempt + 1;
    if (!is_broken_connection(result.error().code) || attempt >= kMaxAttempts)
      co_return fail(std::move(result).error());
    co_await sleep_for(std::chrono::milliseconds(100) * (1 << attempt));
  }
}

Async<boost::json::value> ExecutionStream::follow_once(const OutputSink& sink) {
  auto opened = co_await api_.websocket(path() + "/attach?cursor=" + std::to_string(cursor_));
  if (!opened) co_return fail(std::move(opened).error());
  const std::shared_ptr<http::WebSocket> socket = std::move(*opened);
  socket_ = socket;
  connected_.notify();
  while (true) {
    GB_CO_TRY(const auto message, co_await socket->read());
    GB_CO_TRY(const bool is_last, co_await handle(message, sink));
    if (!is_last) continue;
    is_ended_ = true;
    if (!co_await socket->close(1000, ""))
      co_return std::move(result_);  // all is said; how the farewell goes is no matter
    co_return std::move(result_);
  }
}

Async<bool> ExecutionStream::handle(const http::WebSocket::Message& message,
                                    const OutputSink& sink) {
  made_progress_ = true;
  if (message.is_binary) {
    if (message.data.empty()) co_return false;
    const auto size = message.data.size() - 1;
    auto sunk = co_await sink(message.data[0], message.data.substr(1));
    // Not one of the codes that mean a broken connection: the reader of our own output is gone.
    if (!sunk) co_return fail(Code::kIo, sunk.error().message, {{"output", "closed"}});
    cursor_ += size;
    co_return false;
  }
  GB_CO_TRY(auto event, json::parse(message.data));
  const std::string type = text(event, "type");
  if (type == "cursor") cursor_ = static_cast<uint64_t>(number(event, "cursor"));
  if (type == "exit" && field(event, "execution") != nullptr) result_ = *field(event, "execution");
  co_return type == "exit";
}

void ExecutionStream::forward_stdin(StdinMode mode) {
  if (mode == StdinMode::kTerminal) spawn(loop_.executor, "stdin", forward_terminal());
  if (mode == StdinMode::kPipe) spawn(loop_.executor, "stdin", forward_pipe());
}

Awaitable<void> ExecutionStream::forward_terminal() {
  auto self = shared_from_this();
  while (!is_ended_) {
    const std::string data = co_await read_input(STDIN_FILENO);
    if (is_ended_) break;
    co_await send(true, std::string(1, '\0') + data);
    if (data.empty()) break;
  }
}

Awaitable<void> ExecutionStream::forward_pipe() {
  auto self = shared_from_this();
  auto sent = co_await send_pipe();
  // A command that does not read all of its input, or has ended, is no error: a shell's pipe does
  // not complain either.
  if (sent || is_ended_ || sent.error().code == Code::kConflict ||
      sent.error().code == Code::kSandboxEnded)
    co_return;
  const auto now = co_await api_.call("GET", path());
  if (is_ended_ || (now && text(*now, "state") == "ended")) co_return;
  stdin_error_ = sent.error();
  stdin_error_->message = "the command's input broke off: " + stdin_error_->message;
  if (!co_await kill()) co_return;
}

Async<void> ExecutionStream::send_pipe() {
  GB_CO_TRY(auto connection, co_await api_.connect(kForever));
  const std::string target = api_.target(path() + "/stdin?close=true");
  GB_CO_TRYV(
      co_await connection->start("POST", target, api_.headers(), http::Connection::kChunked));
  while (true) {
    const std::string data = co_await read_input(STDIN_FILENO);
    if (data.empty()) break;
    if (!co_await connection->write(data)) break;  // finish() knows why
  }
  GB_CO_TRY(auto head, co_await connection->finish());
  auto checked = co_await ApiClient::check(*connection, std::move(head));
  if (!checked) co_return fail(std::move(checked).error());
  co_return Result<void>();
}

Awaitable<void> ExecutionStream::send(bool is_binary, std::string data) {
  while (!socket_ && !is_ended_) co_await connected_.wait();
  auto socket = socket_;
  if (socket && !co_await socket->send(is_binary, data))
    co_return;  // follow() sees the broken connection too
}

void ExecutionStream::resize(int cols, int rows) {
  boost::json::value message{{"type", "resize"}, {"cols", cols}, {"rows", rows}};
  auto self = shared_from_this();
  spawn(loop_.executor, "resize", [](auto stream, std::string data) -> Awaitable<void> {
    co_await stream->send(false, std::move(data));
  }(self, json::to_text(message)));
}

void ExecutionStream::signal(int number) {
  spawn(loop_.executor, "signal", [](auto stream, int signal_number) -> Awaitable<void> {
    boost::json::value body{{"signal", signal_number}, {"tree", true}};
    // 409 when it has just ended.
    if (!co_await stream->api_.call("POST", stream->path() + "/signal", std::move(body))) co_return;
  }(shared_from_this(), number));
}

Async<void> ExecutionStream::kill() {
  GB_CO_TRY(const auto execution, co_await api_.call("POST", path() + "/kill"));
  (void)execution;
  co_return Result<void>();
}

}  // namespace glovebox::cli
