// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>

#include "api/e2b/errors.h"
#include "api/e2b/names.h"
#include "api/e2b/output.h"
#include "api/e2b/rpc.h"
#include "base/text.h"
#include "http/json.h"

// process.Process: commands, terminals, their input and signals.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::ExecInfo;
using sandbox::ExecutionPtr;
using sandbox::Millis;

constexpr size_t kReadBytes = 192 << 10;
constexpr size_t kPage = 1000;
constexpr Millis kGoneCheck{15'000};       // how soon a silent stream notices that its reader left
constexpr std::chrono::seconds kAfterlife{30};  // in which an ended process can still be connected to
constexpr size_t kMaxTag = 128;

// Start -------------------------------------------------------------------------------------------------------------------

void add_platform_env(const DaemonCall& call, sandbox::StringMap& env) {
  const std::pair<const char*, std::string> own[] = {
      {"E2B_SANDBOX", "true"}, {"E2B_SANDBOX_ID", wire_id(call.info.id)}, {"E2B_TEMPLATE_ID", call.info.template_name}};
  for (const auto& [name, value] : own) {
    if (!call.info.env.contains(name)) env.try_emplace(name, value);
  }
}

Result<std::optional<sandbox::Pty>> read_pty(const Message& request, const sandbox::StringMap& env) {
  GB_TRY(const auto pty, request.message("pty"));
  if (!pty) return std::nullopt;
  sandbox::Pty out;
  GB_TRY(const auto size, pty->message("size"));
  if (size) {
    GB_TRY(const auto cols, size->integer("cols"));
    GB_TRY(const auto rows, size->integer("rows"));
    out.cols = static_cast<int>(std::clamp<int64_t>(cols.value_or(80), 1, 65535));
    out.rows = static_cast<int>(std::clamp<int64_t>(rows.value_or(24), 1, 65535));
  }
  if (const auto term = env.find("TERM"); term != env.end() && term->second.size() <= 64) out.term = term->second;
  return out;
}

Result<sandbox::ExecSpec> read_start(const DaemonCall& call, const Message& request) {
  GB_TRY(const auto process, request.message("process"));
  if (!process) return fail(Code::kInvalidArgument, "process: is required");
  sandbox::ExecSpec spec;
  GB_TRY(const auto cmd, process->text("cmd"));
  if (cmd.empty()) return fail(Code::kInvalidArgument, "process.cmd: is required");
  GB_TRY(spec.argv, process->texts("args"));
  spec.argv.insert(spec.argv.begin(), cmd);
  GB_TRY(spec.env, process->map("envs"));
  add_platform_env(call, spec.env);
  GB_TRY(const auto cwd, process->text("cwd"));
  GB_TRY(spec.cwd, call.path(cwd));
  GB_TRY(spec.name, request.text("tag"));
  if (spec.name.size() > kMaxTag) return fail(Code::kInvalidArgument, "tag: has more than 128 bytes");
  GB_TRY(spec.pty, read_pty(request, spec.env));
  GB_TRY(const auto has_stdin, request.boolean("stdin"));
  spec.keep_stdin = spec.pty || has_stdin.value_or(true);
  spec.user = call.user;
  spec.timeout = client_timeout(call.request());
  return spec;
}

// Following ---------------------------------------------------------------------------------------------------------------

// Sends output from `cursor` on until the end. kTimeout at the deadline, kCancelled when the client has gone.
Async<void> follow(DaemonCall& call, sandbox::Execution& execution, uint64_t cursor, Deadline deadline, StreamAnswer& answer) {
  OutputEvents events(execution.info().pty);
  const Millis interval = keepalive_interval(call.request());
  Deadline silent_until = after(interval);
  for (;;) {
    const bool ended = execution.ended();  // before the read: what it left behind is then complete
    GB_CO_TRY(auto chunks, co_await execution.read(cursor, kReadBytes));
    std::string text;
    for (const auto& chunk : chunks) {
      cursor = chunk.cursor + chunk.data.size();
      text += events.take(chunk.stream, chunk.data);
    }
    if (chunks.empty() && ended) text = events.finish();
    if (!text.empty()) {
      GB_CO_TRYV(co_await answer.write(std::move(text)));
      silent_until = after(interval);
    }
    if (!chunks.empty()) continue;
    if (ended) co_return Result<void>();
    if (Clock::now() >= deadline) co_return fail(Code::kTimeout, "the deadline of this call has passed");
    if (call.exchange.client_gone()) co_return fail(Code::kCancelled, "the client has gone");
    if (Clock::now() >= silent_until) {
      GB_CO_TRYV(co_await answer.send(R"({"event":{"keepalive":{}}})"));
      silent_until = after(interval);
    }
    co_await execution.wait_output(cursor, std::min({silent_until, deadline, after(kGoneCheck)}));
  }
}

Async<void> finish(const ExecInfo& info, StreamAnswer& answer) {
  const sandbox::Outcome& outcome = *info.outcome;
  // Clients learn of a killed sandbox by a stream that breaks off and a sandbox that answers 502.
  if (outcome.type == "sandbox_ended") co_return fail(Code::kSandboxEnded, outcome.message);
  if (outcome.type == "timed_out") {
    co_return co_await answer.end_with(rpc_error("deadline_exceeded", "the command ran into its timeout and was killed"));
  }
  const auto end = end_event(outcome);
  if (!end) co_return co_await answer.end_with(rpc_error("unknown", "how the command ended is not known: " + outcome.message));
  if (info.truncated() && !info.pty) {
    const std::string note = "\n[" + std::to_string(info.dropped_stdout + info.dropped_stderr) +
                             " bytes of output are missing: the server's limit for one command was reached]\n";
    GB_CO_TRYV(co_await answer.write(output_event("stderr", note)));
  }
  GB_CO_TRYV(co_await answer.send(*end));
  co_return co_await answer.end();
}

// `deadline`: of the call; the command itself is not touched by it.
Async<void> stream_execution(DaemonCall& call, ExecutionPtr execution, uint64_t cursor, Deadline deadline, StreamAnswer& answer) {
  GB_CO_TRYV(co_await answer.begin());
  GB_CO_TRYV(co_await answer.send(R"({"event":{"start":{"pid":)" + std::to_string(execution->info().pid) + "}}}"));
  const auto followed = co_await follow(call, *execution, cursor, deadline, answer);
  if (!followed && followed.error().code == Code::kTimeout) co_return co_await answer.end_with(followed.error());
  if (!followed) co_return followed;
  co_return co_await finish(execution->info(), answer);
}

Async<void> start(DaemonCall& call, const Message& request, StreamAnswer& answer) {
  GB_CO_TRY(auto spec, read_start(call, request));
  const std::string cwd = spec.cwd;
  auto started = co_await call.parts.service.execute(call.caller, call.info.id, std::move(spec));
  if (!started && started.error().code == Code::kWorkdirNotFound) {
    co_return fail(Code::kWorkdirNotFound, "cwd '" + cwd + "' does not exist");
  }
  if (!started) co_return fail(std::move(started).error());
  co_return co_await stream_execution(call, *started, 0, Deadline::max(), answer);
}

// Finding -----------------------------------------------------------------------------------------------------------------

struct Selector {
  int64_t pid = 0;
  std::string tag;
  bool matches(const ExecInfo& info) const { return tag.empty() ? info.pid == pid : info.name == tag; }
  std::string text() const { return tag.empty() ? "pid " + std::to_string(pid) : "tag '" + tag + "'"; }
};

Result<Selector> read_selector(const Message& request) {
  GB_TRY(const auto process, request.message("process"));
  if (!process) return fail(Code::kInvalidArgument, "process: is required");
  Selector out;
  GB_TRY(out.tag, process->text("tag"));
  GB_TRY(const auto pid, process->integer("pid"));
  if (out.tag.empty() && !pid) return fail(Code::kInvalidArgument, "process: name a pid or a tag");
  out.pid = pid.value_or(0);
  return out;
}

bool is_recent(const ExecInfo& info) {
  return info.ended_at && *info.ended_at + kAfterlife > std::chrono::system_clock::now();
}

// Calls `take` for each execution, newest first, until it says true.
template <class Take>
Result<void> walk(DaemonCall& call, std::optional<bool> running, Take take) {
  std::string cursor;
  do {
    GB_TRY(const auto page, call.parts.service.executions(call.caller, call.info.id, running, kPage, cursor));
    for (const ExecInfo& info : page.items) {
      if (take(info)) return {};
    }
    cursor = page.next_cursor;
  } while (!cursor.empty());
  return {};
}

Async<ExecutionPtr> find(DaemonCall& call, const Message& request, bool also_ended) {
  GB_CO_TRY(const auto selector, read_selector(request));
  std::string id;
  GB_CO_TRYV(walk(call, also_ended ? std::nullopt : std::optional(true), [&](const ExecInfo& info) {
    if (selector.matches(info) && (!info.outcome || is_recent(info))) id = info.id;
    return !id.empty();
  }));
  if (id.empty()) co_return fail(Code::kExecutionNotFound, "process with " + selector.text() + " not found");
  co_return co_await call.parts.service.execution(call.caller, call.info.id, id);
}

// What it has written before is not repeated.
Async<void> connect(DaemonCall& call, const Message& request, StreamAnswer& answer) {
  GB_CO_TRY(auto execution, co_await find(call, request, true));
  const Millis timeout = client_timeout(call.request());
  const uint64_t cursor = execution->info().next_cursor;
  co_return co_await stream_execution(call, std::move(execution), cursor, timeout.count() > 0 ? after(timeout) : Deadline::max(), answer);
}

bj::object process_object(const ExecInfo& info) {
  bj::array args;
  for (size_t i = 1; i < info.argv.size(); ++i) args.push_back(bj::string(utf8_lossy(info.argv[i])));
  // A command of another dialect is a line for the shell.
  const std::string cmd = info.argv.empty() ? "/bin/sh" : utf8_lossy(info.argv[0]);
  if (info.argv.empty()) args = {"-c", utf8_lossy(info.command)};
  bj::object config{{"cmd", cmd}, {"args", std::move(args)}, {"envs", bj::object()}};
  if (!info.cwd.empty()) config["cwd"] = utf8_lossy(info.cwd);
  bj::object out{{"config", std::move(config)}, {"pid", info.pid}};
  if (!info.name.empty()) out["tag"] = utf8_lossy(info.name);
  return out;
}

Async<bj::value> list(DaemonCall& call, const Message&) {
  bj::array found;
  GB_CO_TRYV(walk(call, true, [&](const ExecInfo& info) {
    found.push_back(process_object(info));
    return false;
  }));
  co_return bj::object{{"processes", std::move(found)}};
}

// Input, signals, size ----------------------------------------------------------------------------------------------------

Async<bj::value> done(Result<void> result, std::string_view code_of_conflict) {
  if (result) co_return bj::object();
  if (result.error().code == Code::kConflict) co_return fail(rpc_error(code_of_conflict, result.error().message));
  co_return fail(std::move(result).error());
}

Async<bj::value> send_input(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto execution, co_await find(call, request, false));
  GB_CO_TRY(const auto input, request.message("input"));
  if (!input) co_return fail(Code::kInvalidArgument, "input: is required");
  const bool is_pty = execution->info().pty;
  GB_CO_TRY(auto bytes, input->bytes(is_pty ? "pty" : "stdin"));
  if (!bytes) co_return fail(rpc_error("internal", is_pty ? "the process has a terminal: send pty" : "the process has no terminal: send stdin"));
  if (bytes->empty()) co_return bj::object();
  co_return co_await done(co_await execution->write_stdin(std::move(*bytes)), "internal");
}

Async<bj::value> close_stdin(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto execution, co_await find(call, request, false));
  if (execution->info().pty) co_return fail(rpc_error("unknown", "a terminal's input cannot be closed; send Ctrl-D"));
  co_return co_await done(co_await execution->close_stdin(), "internal");
}

Result<int> read_signal(const Message& request) {
  const auto number = request.integer("signal");
  if (number && *number && (**number == SIGKILL || **number == SIGTERM)) return static_cast<int>(**number);
  GB_TRY(const auto name, request.text("signal"));
  if (name == "SIGNAL_SIGKILL") return SIGKILL;
  if (name == "SIGNAL_SIGTERM") return SIGTERM;
  return fail(Code::kUnsupported, "signal: must be SIGNAL_SIGKILL or SIGNAL_SIGTERM");
}

Async<bj::value> send_signal(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto execution, co_await find(call, request, false));
  GB_CO_TRY(const int number, read_signal(request));
  // All of its processes, so that none is left without an owner.
  if (number == SIGKILL) co_return co_await done(co_await execution->kill(), "not_found");
  co_return co_await done(co_await execution->signal(number, true), "not_found");
}

Async<bj::value> update(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto execution, co_await find(call, request, false));
  GB_CO_TRY(const auto pty, request.message("pty"));
  if (!pty) co_return bj::object();
  GB_CO_TRY(const auto size, read_pty(request, {}));
  co_return co_await done(co_await execution->resize(size->cols, size->rows), "internal");
}

Async<void> stream_input(DaemonCall&, const Message&, StreamAnswer&) {
  co_return fail(Code::kUnsupported, "this server does not have StreamInput: use SendInput");
}

}  // namespace

const std::vector<Method>& process_methods() {
  static const std::vector<Method> methods{
      {"/process.Process/Start", nullptr, start},
      {"/process.Process/Connect", nullptr, connect},
      {"/process.Process/List", list, nullptr},
      {"/process.Process/SendInput", send_input, nullptr},
      {"/process.Process/CloseStdin", close_stdin, nullptr},
      {"/process.Process/SendSignal", send_signal, nullptr},
      {"/process.Process/Update", update, nullptr},
      {"/process.Process/StreamInput", nullptr, stream_input},
  };
  return methods;
}

}  // namespace glovebox::api::e2b
