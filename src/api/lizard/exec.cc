// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/lizard/call.h"
#include "api/lizard/errors.h"
#include "api/lizard/exec_request.h"
#include "api/lizard/lines.h"
#include "base/text.h"
#include "http/sse.h"

namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
constexpr size_t kJsonOutputLimit = 512 << 10;  // of each stream in a JSON answer
constexpr size_t kReadBytes = 256 << 10;
constexpr auto kKeepalive = http::EventStream::kKeepalive;  // the client gives up after 300 s of silence

// How the command ended, once it has. The sandbox may be gone with it: then kSandboxEnded or the like, and no invented number.
Result<int> final_code(const Call& call, const sandbox::Execution& execution) {
  const sandbox::Outcome& outcome = *execution.info().outcome;
  std::optional<sandbox::Ended> ended;
  if (const auto info = call.service.get(call.caller, call.param("id"))) ended = info->ended;
  if (const auto code = exit_code(outcome, ended)) return *code;
  return fail(refusal(Code::kAgentProtocol, "SANDBOX_LOST", "the sandbox was lost while the command ran: " + outcome.message));
}

// JSON mode ---------------------------------------------------------------------------------------------------------------

// Reads from the beginning until both heads are full or the output ends.
Async<void> collect(sandbox::Execution& execution, Head& out, Head& err) {
  uint64_t cursor = 0;
  while (!out.is_full() || !err.is_full()) {
    GB_CO_TRY(const auto chunks, co_await execution.read(cursor, kReadBytes));
    if (chunks.empty()) break;
    for (const auto& chunk : chunks) (chunk.stream == sandbox::Stream::kStderr ? err : out).take(chunk.data);
    cursor = chunks.back().cursor + chunks.back().data.size();
  }
  co_return Result<void>();
}

// White space before the object keeps the connection alive; it is legal JSON.
Async<void> wait_with_blanks(Call& call, sandbox::Execution& execution) {
  auto& response = call.exchange.response;
  while (!co_await execution.wait(after(kKeepalive))) {
    if (!response.head_sent()) GB_CO_TRYV(co_await response.begin(200, call.json_headers()));
    GB_CO_TRYV(co_await response.write(" "));
  }
  co_return Result<void>();
}

Async<void> reply_result(Call& call, bj::object result) {
  auto& response = call.exchange.response;
  if (!response.head_sent()) co_return co_await call.reply(std::move(result));
  const std::string text = json::to_text(std::move(result));
  GB_CO_TRYV(co_await response.write(text));
  co_return co_await response.end();
}

Async<void> answer_with_json(Call& call, sandbox::ExecutionPtr execution) {
  GB_CO_TRYV(co_await wait_with_blanks(call, *execution));
  GB_CO_TRY(const int code, final_code(call, *execution));
  Head out(kJsonOutputLimit), err(kJsonOutputLimit);
  GB_CO_TRYV(co_await collect(*execution, out, err));
  bj::object result{{"stdout", out.text()}, {"stderr", err.text()}, {"exitCode", code}};
  const auto& info = execution->info();
  const bool is_cut = info.stdout_bytes > kJsonOutputLimit || info.stderr_bytes > kJsonOutputLimit || info.truncated();
  if (is_cut) result["truncated"] = true;
  co_return co_await reply_result(call, std::move(result));
}

// Stream mode -------------------------------------------------------------------------------------------------------------

class LineStream {
 public:
  explicit LineStream(Call& call) : call_(call), response_(call.exchange.response), events_(response_) {}

  Async<void> begin(std::string operation, std::optional<int64_t> pid) {
    GB_CO_TRYV(co_await events_.begin(call_.headers()));
    const std::string comment = ": operation " + operation + "\n\n";
    GB_CO_TRYV(co_await response_.write(comment));
    if (pid) GB_CO_TRYV(co_await send(bj::object{{"pid", *pid}}));
    co_return Result<void>();
  }
  Async<void> output(sandbox::Stream stream, std::string data) {
    const bool is_error = stream == sandbox::Stream::kStderr;
    const auto lines = cutters_[is_error].take(data);
    co_return co_await send_lines(is_error, lines);
  }
  Async<void> keepalive() { return events_.keepalive(); }

  Async<void> finish(int code) {
    for (const bool is_error : {false, true}) {
      const auto lines = cutters_[is_error].finish();
      GB_CO_TRYV(co_await send_lines(is_error, lines));
    }
    const std::string text = json::to_text(bj::object{{"exitCode", code}});
    GB_CO_TRYV(co_await events_.event("exit", text));
    co_return co_await events_.end();
  }

 private:
  Async<void> send(bj::object data) {
    const std::string text = json::to_text(std::move(data));
    co_return co_await events_.event("", text);
  }
  Async<void> send_lines(bool is_error, const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
      text += http::sse_event("", json::to_text(bj::object{{"stream", is_error ? "stderr" : "stdout"}, {"line", utf8_lossy(line)}}));
    }
    if (text.empty()) co_return Result<void>();
    co_return co_await response_.write(text);
  }

  Call& call_;
  http::ResponseWriter& response_;
  http::EventStream events_;
  LineCutter cutters_[2];
};

// Sends output until the execution has ended and all of it is sent.
Async<void> pump(sandbox::Execution& execution, LineStream& stream) {
  for (uint64_t cursor = 0;;) {
    const bool ended = execution.ended();  // before the read: what it left behind is then complete
    GB_CO_TRY(auto chunks, co_await execution.read(cursor, kReadBytes));
    for (auto& chunk : chunks) {
      cursor = chunk.cursor + chunk.data.size();
      GB_CO_TRYV(co_await stream.output(chunk.stream, std::move(chunk.data)));
    }
    if (!chunks.empty()) continue;
    if (ended) co_return Result<void>();
    if (!co_await execution.wait_output(cursor, after(kKeepalive))) GB_CO_TRYV(co_await stream.keepalive());
  }
}

std::string dropped_note(const sandbox::ExecInfo& info) {
  return "\n[" + std::to_string(info.dropped_stdout + info.dropped_stderr) +
         " bytes of output are missing: the server's limit for one command was reached]\n";
}

Async<void> answer_with_stream(Call& call, sandbox::ExecutionPtr execution, bool pid_event) {
  LineStream stream(call);
  const auto& info = execution->info();
  GB_CO_TRYV(co_await stream.begin(info.id, pid_event ? std::optional(info.pid) : std::nullopt));
  GB_CO_TRYV(co_await pump(*execution, stream));
  if (info.truncated()) GB_CO_TRYV(co_await stream.output(sandbox::Stream::kStderr, dropped_note(info)));
  GB_CO_TRY(const int code, final_code(call, *execution));
  co_return co_await stream.finish(code);
}

// A command that could not be started, as a shell would tell it.
Async<void> answer_not_started(Call& call, const Error& error, int code, bool streamed) {
  if (!streamed) {
    co_return co_await call.reply(bj::object{{"stdout", ""}, {"stderr", utf8_lossy(error.message) + "\n"}, {"exitCode", code}});
  }
  LineStream stream(call);
  GB_CO_TRYV(co_await stream.begin("none", std::nullopt));
  GB_CO_TRYV(co_await stream.output(sandbox::Stream::kStderr, error.message + "\n"));
  co_return co_await stream.finish(code);
}

Async<void> exec(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  GB_CO_TRY(auto request, parse_exec(body));
  const bool streamed = http::header_lists(call.exchange.request.headers, "Accept", "text/event-stream");
  auto started = co_await call.service.execute(call.caller, call.param("id"), std::move(request.spec));
  if (!started) {
    const Error error = std::move(started).error();
    if (const auto code = start_failure_code(error)) co_return co_await answer_not_started(call, error, *code, streamed);
    co_return fail(error);
  }
  if (streamed) co_return co_await answer_with_stream(call, *started, request.pid_event);
  co_return co_await answer_with_json(call, *started);
}

// Processes ---------------------------------------------------------------------------------------------------------------

bj::object process_object(const sandbox::ProcessInfo& process) {
  bj::array cmd;
  std::string command;
  for (const std::string& word : process.argv) {
    cmd.push_back(bj::string(utf8_lossy(word)));
    command += (command.empty() ? "" : " ") + utf8_lossy(word);
  }
  return {{"pid", process.pid}, {"cmd", std::move(cmd)}, {"command", command},
          {"cwd", utf8_lossy(process.cwd)}, {"tag", nullptr}, {"startedAt", process.started_ms}};
}

// The topmost processes of each command: itself, or what outlived it.
std::vector<sandbox::ProcessInfo> command_roots(std::vector<sandbox::ProcessInfo> all) {
  std::map<int64_t, std::string> execution_of;
  for (const auto& process : all) execution_of[process.pid] = process.execution;
  std::erase_if(all, [&](const auto& process) {
    const auto parent = execution_of.find(process.ppid);
    const bool is_inner = parent != execution_of.end() && parent->second == process.execution;
    return process.execution.empty() || is_inner || process.state.starts_with('Z');
  });
  return all;
}

Async<void> list_processes(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(auto all, co_await call.service.processes(call.caller, call.param("id")));
  bj::array found;
  for (const auto& process : command_roots(std::move(all))) found.push_back(process_object(process));
  co_return co_await call.reply(std::move(found));
}

Async<void> signal_process(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto pid, r.integer("pid", 1).required());
  GB_CO_TRY(const auto name, r.string("signal").or_default("SIGTERM"));
  GB_CO_TRYV(r.done());
  const auto number = signal_number(name);
  if (!number) co_return fail(r.error("signal", "must be SIGTERM, SIGKILL, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 or SIGUSR2"));
  GB_CO_TRY(const auto all, co_await call.service.processes(call.caller, call.param("id")));
  const bool is_ours = std::ranges::any_of(all, [&](const auto& p) { return p.pid == pid && !p.execution.empty(); });
  if (!is_ours) co_return fail(refusal(Code::kNotFound, "PROCESS_NOT_FOUND", "no process " + std::to_string(pid) + " of a command"));
  GB_CO_TRYV(co_await call.service.signal_process(call.caller, call.param("id"), pid, *number, true));
  co_return co_await call.reply_empty();
}

}  // namespace

void add_exec_routes(Routes& routes) {
  routes.add("POST", "/api/sandboxes/{id}/exec", exec);
  routes.add("GET", "/api/sandboxes/{id}/processes", list_processes);
  routes.add("POST", "/api/sandboxes/{id}/processes/signal", signal_process);
}

}  // namespace glovebox::api::lizard
