// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/mcp_bridge.h"

#include <csignal>

#include "base/text.h"
#include "http/json.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/report.h"

namespace glovebox::cli {
namespace bj = boost::json;
namespace {

constexpr size_t kMaxMessageBytes = 16 << 20;  // the daemon's own bounds are below
constexpr size_t kMaxLines = 64;
constexpr int kMaxUnderWay = 64;
constexpr std::chrono::hours kPatience{24};  // calls have timeouts of their own
constexpr std::chrono::milliseconds kLastAnswers{
    1500};                                      // clients kill us soon after the input's end
constexpr std::chrono::seconds kKeepAlive{60};  // well below a session's timeout
constexpr int kResumes = 20;
constexpr std::chrono::milliseconds kResumePause{500};
constexpr const char* kSessionHeader = "Mcp-Session-Id";

bool is_method(const bj::value& message, std::string_view name) {
  return text(message, "method") == name;
}

// The ids that wait for a response.
bj::array request_ids(const bj::value& message) {
  bj::array out;
  const auto add = [&](const bj::value& one) {
    const auto* id = field(one, "id");
    if (id != nullptr && field(one, "method") != nullptr) out.push_back(*id);
  };
  if (message.is_array()) {
    for (const bj::value& one : message.get_array()) add(one);
  } else {
    add(message);
  }
  return out;
}

Async<std::string> read_all(http::Connection& connection) {
  std::string out;
  while (out.size() <= kMaxMessageBytes) {
    GB_CO_TRY(const std::string piece, co_await connection.read_some());
    if (piece.empty()) co_return out;
    out += piece;
  }
  co_return fail(Code::kPayloadTooLarge, "the daemon's answer is too long");
}

// What the daemon said in an answer that is no success.
Error error_of(const http::ResponseHead& head, const std::string& body) {
  const auto parsed = json::parse(body);
  const auto* inner = parsed ? field(*parsed, "error") : nullptr;
  const auto* data = inner != nullptr ? field(*inner, "data") : nullptr;
  if (data == nullptr)
    return error_of_answer(head.status, body, head.header("X-Request-Id").value_or(""));
  return error_of_answer(head.status, json::to_text(bj::object{{"error", *data}}),
                         head.header("X-Request-Id").value_or(""));
}

bool is_session_lost(const Error& error) {
  return error.code == Code::kNotFound;
}

}  // namespace

McpBridge::McpBridge(Loop& loop, const ApiClient& api, int input, int output)
    : loop_(loop), api_(api), input_(input), output_fd_(output), output_(loop) {}

void McpBridge::put(std::string message) {
  if (message.empty()) return;
  std::erase(message, '\n');  // only white space between tokens could be one
  outbox_.push_back(std::move(message) + "\n");
  changed_.notify();
}

// One writer, so that messages stay in order.
Awaitable<void> McpBridge::write_messages() {
  const auto self = shared_from_this();
  while (true) {
    while (outbox_.empty()) co_await changed_.wait();
    auto written = co_await output_.push(output_fd_, outbox_.front());
    if (!written) break;
    outbox_.pop_front();
    changed_.notify();
  }
  is_at_end_ = true;  // nobody reads
  lines_.clear();
  changed_.notify();
}

void McpBridge::answer_failure(const bj::array& ids, const Error& error) {
  for (const bj::value& id : ids) {
    const bj::object data{{"code", info(error.code).name}, {"retryable", error.retryable()}};
    put(json::to_text(bj::object{
        {"jsonrpc", "2.0"},
        {"id", id},
        {"error", {{"code", -32000}, {"message", utf8_lossy(error.message)}, {"data", data}}}}));
  }
}

void McpBridge::take_bytes(std::string_view bytes) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos;
       bytes.remove_prefix(end + 1)) {
    partial_ += bytes.substr(0, end);
    if (!skips_line_ && partial_.find_first_not_of(" \t\r") != std::string::npos)
      lines_.push_back(std::move(partial_));
    partial_.clear();
    skips_line_ = false;
  }
  if (!skips_line_) partial_ += bytes;
  if (partial_.size() <= kMaxMessageBytes) return;
  partial_.clear();
  skips_line_ = true;
  put(R"({"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"the message is too long"}})");
}

Awaitable<void> McpBridge::read_lines() {
  const auto self = shared_from_this();
  while (!is_at_end_) {
    const std::string bytes = co_await read_input(input_);
    if (bytes.empty()) break;
    take_bytes(bytes);
    changed_.notify();
    while (lines_.size() >= kMaxLines && !is_at_end_) co_await changed_.wait();
  }
  is_at_end_ = true;
  changed_.notify();
}

// Empty at the end.
Async<std::string> McpBridge::next_line() {
  while (loop_.pending_signals == 0 &&
         (under_way_ >= kMaxUnderWay || (lines_.empty() && !is_at_end_)))
    co_await changed_.wait();
  if (loop_.pending_signals > 0 || lines_.empty()) co_return std::string();
  std::string line = std::move(lines_.front());
  lines_.pop_front();
  changed_.notify();
  co_return line;
}

Async<std::unique_ptr<http::Connection>> McpBridge::send(std::string method,
                                                         const std::string& body,
                                                         http::Headers more,
                                                         http::ResponseHead* head) {
  http::Headers headers = api_.headers();
  headers.emplace_back("Accept", "application/json, text/event-stream");
  // Of the session that is, before anything is waited for: meanwhile another call may find that it is lost, and have none for a moment.
  if (!session_.empty()) headers.emplace_back(kSessionHeader, session_);
  if (!version_.empty()) headers.emplace_back("MCP-Protocol-Version", version_);
  if (!body.empty()) headers.emplace_back("Content-Type", "application/json");
  headers.insert(headers.end(), more.begin(), more.end());
  GB_CO_TRY(auto connection, co_await api_.connect(kPatience));
  const int64_t length =
      body.empty() ? http::Connection::kNoBody : static_cast<int64_t>(body.size());
  const std::string target = api_.target("/mcp");
  GB_CO_TRYV(co_await connection->start(method, target, std::move(headers), length));
  if (!body.empty())
    (void)co_await connection->write(body);  // finish() tells what the daemon made of it
  GB_CO_TRY(*head, co_await connection->finish());
  if (head->status >= 200 && head->status < 300) co_return std::move(connection);
  auto said = co_await read_all(*connection);
  co_return fail(error_of(*head, said.value_or("")));
}

void McpBridge::note_session(const http::ResponseHead& head, const std::string& answer) {
  const auto id = head.header(kSessionHeader);
  if (!id) return;
  session_ = *id;
  const auto parsed = json::parse(answer);
  const auto* result = parsed ? field(*parsed, "result") : nullptr;
  version_ = result != nullptr ? text(*result, "protocolVersion") : "";
}

// The daemon does not know the session: it was replaced while there was no sandbox to know it by.
// The client need not notice.
Async<void> McpBridge::begin_again(std::string lost_session) {
  while (is_beginning_) co_await changed_.wait();
  if (session_ != lost_session || initialize_.empty()) co_return Result<void>();
  is_beginning_ = true;
  session_.clear();
  version_.clear();
  http::ResponseHead head;
  Result<std::string> answer = fail(Code::kUnavailable, "the session could not be begun again");
  auto connection = co_await send("POST", initialize_, {}, &head);
  if (connection) answer = co_await read_all(**connection);
  if (answer) note_session(head, *answer);
  if (session_.empty()) session_ = std::move(lost_session);  // the next call tries again
  is_beginning_ = false;
  changed_.notify();
  if (!connection) co_return fail(std::move(connection).error());
  if (!answer) co_return fail(std::move(answer).error());
  co_return Result<void>();
}

// True when the stream came to its proper end.
Async<bool> McpBridge::take_some_events(http::Connection& connection, std::string* last_id) {
  SseReader reader(kMaxMessageBytes);
  while (true) {
    auto piece = co_await connection.read_some();
    if (!piece) co_return false;
    if (piece->empty()) co_return true;
    reader.feed(*piece);
    while (true) {
      GB_CO_TRY(auto event, reader.next());
      if (!event) break;
      if (!event->id.empty()) *last_id = event->id;
      put(std::move(event->data));
    }
  }
}

Async<void> McpBridge::take_events(std::unique_ptr<http::Connection> connection) {
  std::string last_id;
  GB_CO_TRY(bool is_whole, co_await take_some_events(*connection, &last_id));
  for (int i = 0; !is_whole && i < kResumes; ++i) {
    if (last_id.empty()) break;
    co_await sleep_for(kResumePause);
    http::ResponseHead head;
    auto rest = co_await send("GET", "", {{"Last-Event-ID", last_id}}, &head);
    if (!rest && rest.error().code != Code::kUnavailable) co_return fail(std::move(rest).error());
    if (!rest) continue;
    GB_CO_TRY(is_whole, co_await take_some_events(**rest, &last_id));
  }
  if (!is_whole) co_return fail(Code::kUnavailable, "the connection to the daemon was lost");
  co_return Result<void>();
}

Async<void> McpBridge::exchange(const std::string& line, bool may_begin_again) {
  while (is_beginning_) co_await changed_.wait();
  const std::string session = session_;
  http::ResponseHead head;
  auto connection = co_await send("POST", line, {}, &head);
  if (!connection && is_session_lost(connection.error()) && may_begin_again && !session.empty()) {
    GB_CO_TRYV(co_await begin_again(session));
    co_return co_await exchange(line, false);
  }
  if (!connection) co_return fail(std::move(connection).error());
  if (head.status == 202) co_return Result<void>();
  if (head.header("Content-Type").value_or("").starts_with("text/event-stream"))
    co_return co_await take_events(std::move(*connection));
  GB_CO_TRY(std::string answer, co_await read_all(**connection));
  note_session(head, answer);
  put(std::move(answer));
  co_return Result<void>();
}

Awaitable<void> McpBridge::pass_on(std::string line) {
  const auto self = shared_from_this();
  ++under_way_;
  const auto message = json::parse(line);
  if (!message) {
    put(json::to_text(bj::object{
        {"jsonrpc", "2.0"},
        {"id", nullptr},
        {"error", {{"code", -32700}, {"message", utf8_lossy(message.error().message)}}}}));
  } else {
    const bool begins = is_method(*message, "initialize") && session_.empty();
    auto done = co_await exchange(line, true);
    if (!done) answer_failure(request_ids(*message), done.error());
    if (!done && request_ids(*message).empty()) print_error(done.error(), false);
    if (done && begins) initialize_ = std::move(line);
  }
  --under_way_;
  changed_.notify();
}

Awaitable<void> McpBridge::keep_alive() {
  const auto self = shared_from_this();
  while (true) {
    co_await sleep_for(kKeepAlive);
    if (session_.empty() || is_beginning_) continue;
    http::ResponseHead head;
    auto connection = co_await send(
        "POST", R"({"jsonrpc":"2.0","id":"glovebox-keep-alive","method":"ping"})", {}, &head);
    if (connection) (void)co_await read_all(**connection);
  }
}

Async<void> McpBridge::end_session() {
  if (session_.empty()) co_return Result<void>();
  http::ResponseHead head;
  auto ended = co_await send("DELETE", "", {}, &head);
  if (!ended && !is_session_lost(ended.error())) co_return fail(std::move(ended).error());
  co_return Result<void>();
}

Async<int> McpBridge::run() {
  const auto self = shared_from_this();
  loop_.on_signal = [this](int signal) {
    if (signal != SIGWINCH) changed_.notify();
  };
  spawn(loop_.executor, "mcp.input", read_lines());
  spawn(loop_.executor, "mcp.output", write_messages());
  spawn(loop_.executor, "mcp.keep_alive", keep_alive());
  while (true) {
    GB_CO_TRY(std::string line, co_await next_line());
    if (line.empty()) break;
    // What follows needs the session that this one begins.
    if (session_.empty()) {
      co_await pass_on(std::move(line));
    } else {
      spawn(loop_.executor, "mcp.message", pass_on(std::move(line)));
    }
  }
  const Deadline end = after(kLastAnswers);
  while (under_way_ > 0 && loop_.pending_signals == 0 && Clock::now() < end)
    co_await changed_.wait_until(end);
  auto ended = co_await end_session();
  if (!ended) print_error(ended.error(), false);
  loop_.on_signal = nullptr;  // from here on a signal ends the program at once
  while (!outbox_.empty() && Clock::now() < end) co_await changed_.wait_until(end);
  (void)co_await output_.flush();
  co_return loop_.pending_signals > 0 ? kSignalBase + loop_.last_signal : kOk;
}

}  // namespace glovebox::cli
