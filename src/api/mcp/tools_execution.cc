// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "api/mcp/output.h"
#include "api/mcp/tool.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
using sandbox::ExecutionPtr;
using sandbox::Millis;
namespace {

constexpr double kDefaultTimeout = 55;  // seconds: the official clients give a call up after 60
constexpr double kMaxTimeout = 3600;
constexpr double kMaxBackgroundTimeout = 24 * 3600;
constexpr double kMaxWait = 50;
constexpr std::chrono::seconds kProgressInterval{2};

Millis from_seconds(double seconds) {
  return Millis(static_cast<int64_t>(std::llround(seconds * 1000)));
}

// What `exec` was asked for.
struct ExecRequest {
  std::string sandbox_id;
  sandbox::ExecSpec spec;
  bool is_background = false;
  size_t max_output = kDefaultOutputBytes;
};

Result<ExecRequest> read_exec(const bj::value& arguments) {
  json::Reader r(arguments);
  ExecRequest out;
  auto& spec = out.spec;
  GB_TRY(out.sandbox_id, read_sandbox_id(r));
  GB_TRY(const auto command, r.string("command", 1).optional());
  GB_TRY(spec.argv, r.strings("argv", 10'000).or_default({}));
  GB_TRY(spec.cwd, r.string("cwd", 1, 4095).or_default(""));
  GB_TRY(spec.env, r.string_map("env", 1000).or_default({}));
  GB_TRY(spec.stdin_data, r.content("stdin").optional());
  GB_TRY(spec.user, r.string("user", 1, 64).or_default(""));
  GB_TRY(out.is_background, r.boolean("background").or_default(false));
  GB_TRY(const auto timeout, r.number("timeout_s", 0.1, kMaxBackgroundTimeout).optional());
  GB_TRY(const int64_t most, r.integer("max_output_bytes", 1024, kMaxOutputBytes).or_default(kDefaultOutputBytes));
  GB_TRYV(r.done());
  if (spec.argv.empty() == !command) return fail(r.error("command", "give either command or argv (at least one word)"));
  for (const auto& [name, value] : spec.env) {
    if (name.empty() || name.find('=') != std::string::npos) return fail(r.error("env", "holds an impossible name"));
  }
  if (!out.is_background && timeout && *timeout > kMaxTimeout)
    return fail(r.error("timeout_s", "must be at most 3600 unless background is true"));
  spec.command = command.value_or("");
  spec.detached = out.is_background;
  if (timeout || !out.is_background) spec.timeout = from_seconds(timeout.value_or(kDefaultTimeout));
  out.max_output = static_cast<size_t>(most);
  return out;
}

bj::object describe_execution(const sandbox::ExecInfo& info) {
  const auto until = info.ended_at.value_or(std::chrono::system_clock::now());
  bj::object out{
      {"sandbox_id", info.sandbox_id},
      {"execution_id", info.id},
      {"ended", info.outcome.has_value()},
      {"outcome", info.outcome ? bj::value(info.outcome->type) : bj::value(nullptr)},
      {"exit_code", info.outcome && info.outcome->exit_code ? bj::value(*info.outcome->exit_code) : bj::value(nullptr)},
      {"duration_ms", std::chrono::duration_cast<Millis>(until - info.started_at).count()},
      {"children_left", info.children_left}};
  if (info.outcome && info.outcome->signal) out["signal"] = *info.outcome->signal;
  return out;
}

std::string outcome_line(const sandbox::ExecInfo& info) {
  if (!info.outcome) return "[still running; execution_id " + info.id + "]";
  const auto& outcome = *info.outcome;
  if (outcome.exit_code) return "[exit code " + std::to_string(*outcome.exit_code) + "]";
  std::string out = "[" + outcome.type;
  if (outcome.signal) out += " by signal " + std::to_string(*outcome.signal);
  if (!outcome.message.empty()) out += ": " + outcome.message;
  return out + "]";
}

ToolResult show(const sandbox::ExecInfo& info, const Output& output) {
  ToolResult result;
  std::string text = output.text;
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  text += outcome_line(info);
  if (output.is_truncated)
    text += "\n[output left out; exec_output with execution_id " + info.id + " and a cursor reads the rest]";
  if (info.outcome && info.children_left) text += "\n[processes it started still run]";
  result.content.push_back(text_content(text));
  result.structured = describe_execution(info);
  result.structured["stdout"] = output.streams[0];
  result.structured["stderr"] = output.streams[1];
  result.structured["truncated"] = output.is_truncated;
  result.structured["next_cursor"] = output.next_cursor;
  return result;
}

// Waits for the end. Cancelling the call kills the execution.
Async<void> wait_for_end(ToolCall& call, const ExecutionPtr& execution) {
  const Clock::time_point started = Clock::now();
  const auto executor = co_await this_executor();
  call.running->on_cancel([executor, execution] {
    auto kill = [](ExecutionPtr victim) -> Awaitable<void> { (void)co_await victim->kill(); };
    spawn(executor, "mcp.cancel", kill(execution));
  });
  while (!execution->ended()) {
    if (co_await execution->wait(after(kProgressInterval)) || !call.progress) continue;
    GB_CO_TRY(std::string line, co_await last_line(execution));
    call.progress(std::chrono::duration<double>(Clock::now() - started).count(), std::move(line));
  }
  co_return Result<void>();
}

Async<ToolResult> exec(ToolCall& call) {
  GB_CO_TRY(auto request, read_exec(call.arguments));
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, request.sandbox_id));
  GB_CO_TRY(const auto execution, co_await call.service.execute(call.caller, place.id, std::move(request.spec)));
  if (request.is_background) {
    auto result = show(execution->info(), Output{});
    add_note(result, place.note);
    co_return result;
  }
  GB_CO_TRYV(co_await wait_for_end(call, execution));
  GB_CO_TRY(const auto output, co_await head_and_tail(execution, request.max_output));
  auto result = show(execution->info(), output);
  add_note(result, place.note);
  co_return result;
}

struct Target {
  std::string sandbox_id, execution_id;
};
Result<Target> read_target(const ToolCall& call, json::Reader& r) {
  Target out;
  GB_TRY(out.sandbox_id, read_sandbox_id(r));
  GB_TRY(out.execution_id, r.string("execution_id", 1, 64).required());
  if (out.sandbox_id.empty()) out.sandbox_id = call.session->conversation.own();
  if (out.sandbox_id.empty()) return fail(Code::kExecutionNotFound, "this session has no sandbox yet, so nothing runs in it");
  return out;
}

Async<ToolResult> exec_output(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const int64_t cursor, r.integer("cursor", 0).or_default(0));
  GB_CO_TRY(const double wait, r.number("wait_s", 0, kMaxWait).or_default(0));
  GB_CO_TRY(const int64_t most, r.integer("max_output_bytes", 1024, kMaxOutputBytes).or_default(kDefaultOutputBytes));
  GB_CO_TRY(const auto target, read_target(call, r));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto execution, co_await call.service.execution(call.caller, target.sandbox_id, target.execution_id));
  const Deadline deadline = after(from_seconds(wait));
  const auto from = static_cast<uint64_t>(cursor);
  while (!execution->ended() && execution->info().next_cursor <= from && Clock::now() < deadline &&
         !call.running->is_cancelled()) {
    co_await execution->wait_output(from, std::min(deadline, after(kProgressInterval)));
  }
  GB_CO_TRY(const auto output, co_await onward(execution, from, static_cast<size_t>(most)));
  co_return show(execution->info(), output);
}

Async<ToolResult> exec_kill(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto target, read_target(call, r));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto execution, co_await call.service.execution(call.caller, target.sandbox_id, target.execution_id));
  GB_CO_TRYV(co_await execution->kill());
  ToolResult result;
  result.content.push_back(text_content(outcome_line(execution->info())));
  result.structured = describe_execution(execution->info());
  co_return result;
}

constexpr std::string_view kExecutionProperties = R"("sandbox_id": {"type": "string"},
  "execution_id": {"type": "string"},
  "ended": {"type": "boolean"},
  "outcome": {"type": ["string", "null"], "description": "exited, signalled, timed_out, oom_killed, killed_by_caller, sandbox_ended or interrupted; null while it runs"},
  "exit_code": {"type": ["integer", "null"]},
  "signal": {"type": "integer"},
  "duration_ms": {"type": "integer"},
  "children_left": {"type": "boolean", "description": "processes it started outlived it"})";

const std::string& execution_schema() {
  static const std::string text = R"({"type": "object", "properties": {)" + std::string(kExecutionProperties) +
                                  R"(}, "required": ["sandbox_id", "execution_id", "ended", "outcome", "exit_code"]})";
  return text;
}

const std::string& output_schema() {
  static const std::string text = R"({"type": "object", "properties": {)" + std::string(kExecutionProperties) + R"(,
    "stdout": {"type": "string"}, "stderr": {"type": "string"},
    "truncated": {"type": "boolean", "description": "some output is not in this result"},
    "next_cursor": {"type": "integer", "description": "where exec_output goes on"}},
    "required": ["sandbox_id", "execution_id", "ended", "outcome", "exit_code", "stdout", "stderr", "truncated", "next_cursor"]})";
  return text;
}

const std::string& exec_properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "command": {"type": "string", "minLength": 1, "description": "A shell command line, run by /bin/sh -c. Give this or argv."},
    "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10000, "description": "A program and its arguments, run without a shell. Give this or command."},
    "cwd": {"type": "string", "minLength": 1, "maxLength": 4095, "description": "Directory to run in; default: the sandbox's working directory"},
    "env": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1000, "description": "Additional environment variables"},
    "stdin": {"type": "string", "description": "Text for standard input, which is empty otherwise"},
    "user": {"type": "string", "minLength": 1, "maxLength": 64, "description": "User to run as; default: the sandbox's user. root is allowed."},
    "timeout_s": {"type": "number", "minimum": 0.1, "maximum": 86400, "description": "Kill it, with all its processes, after this many seconds. Default 55, at most 3600; with background: none by default, at most 86400."},
    "background": {"type": "boolean", "default": false, "description": "Return at once with an execution_id while it goes on: for servers and long jobs. exec_output reads what it writes."},
    "max_output_bytes": {"type": "integer", "minimum": 1024, "maximum": 524288, "default": 65536, "description": "Of longer output the beginning and the end are returned."}})";
  return text;
}

const std::string& exec_output_properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "execution_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "From exec"},
    "cursor": {"type": "integer", "minimum": 0, "default": 0, "description": "Where to begin: 0, or next_cursor of the result before"},
    "wait_s": {"type": "number", "minimum": 0, "maximum": 50, "default": 0, "description": "Wait up to this long for new output or the end"},
    "max_output_bytes": {"type": "integer", "minimum": 1024, "maximum": 524288, "default": 65536, "description": "Most output to return"}})";
  return text;
}

const std::string& exec_kill_properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "execution_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "From exec"}})";
  return text;
}

}  // namespace

void add_execution_tools(std::vector<Tool>& tools) {
  tools.push_back({.name = "exec",
                   .title = "Run a command",
                   .description = "Runs a command in a sandbox (an isolated Linux machine) and returns its output and exit code. "
                                  "A non-zero exit code is a result, "
                                  "not an error. Files and background processes stay for later calls; the shell's variables and "
                                  "directory do not. There is no terminal: "
                                  "use non-interactive options. The network is what the operator allows, often nothing at all.",
                   .input_properties = exec_properties(),
                   .required = "[]",
                   .output_schema = output_schema(),
                   .is_destructive = true,
                   .is_open_world = true,
                   .run = exec});
  tools.push_back({.name = "exec_output",
                   .title = "Read a command's output",
                   .description = "Returns output of a command started by exec from a cursor on, and whether it has ended: for "
                                  "background commands, and for output "
                                  "that a result left out.",
                   .input_properties = exec_output_properties(),
                   .required = R"(["execution_id"])",
                   .output_schema = output_schema(),
                   .is_read_only = true,
                   .is_idempotent = true,
                   .run = exec_output});
  tools.push_back(
      {.name = "exec_kill",
       .title = "Kill a command",
       .description = "Kills a command started by exec and every process that it started. Does nothing if it has ended.",
       .input_properties = exec_kill_properties(),
       .required = R"(["execution_id"])",
       .output_schema = execution_schema(),
       .is_destructive = true,
       .is_idempotent = true,
       .run = exec_kill});
}

}  // namespace glovebox::api::mcp
