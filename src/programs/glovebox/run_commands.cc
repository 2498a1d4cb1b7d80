// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <csignal>
#include <cstdlib>

#include "base/text.h"
#include "http/json.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/execution_stream.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/own_daemon.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/terminal.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
using std::chrono::milliseconds;

constexpr int kBrokenPipe = kSignalBase + SIGPIPE;
constexpr size_t kMaxCollected = 8 << 20;
// A sandbox of `run` and `shell` lives this long after the last sign of life of this program.
constexpr milliseconds kLease = std::chrono::minutes(10);
constexpr milliseconds kRenewEvery = std::chrono::minutes(1);
constexpr milliseconds kHangupGrace = std::chrono::seconds(5);

bj::value exec_body(const ExecOptions& options, StdinMode stdin_mode) {
  bj::object body;
  bj::array argv;
  for (const std::string& argument : options.argv) argv.emplace_back(argument);
  body["argv"] = std::move(argv);
  body["stdin"] = stdin_mode != StdinMode::kNone;
  if (!options.env.empty()) body["env"] = to_object(parse_pairs(options.env, true).value());
  if (!options.secrets.empty()) body["secrets"] = to_object(parse_pairs(options.secrets, true).value());
  if (options.user) body["user"] = *options.user;
  if (options.workdir) body["cwd"] = *options.workdir;
  if (options.name) body["name"] = *options.name;
  if (options.timeout) body["timeout_ms"] = parse_duration(*options.timeout).value().count();
  if (options.tty) {
    const WindowSize size = window_size(STDIN_FILENO);
    const char* term = std::getenv("TERM");
    body["pty"] = {{"cols", size.cols},
                   {"rows", size.rows},
                   {"term", term == nullptr ? "xterm-256color" : term}};
  }
  return body;
}

// What the exit status alone does not tell.
void explain(const bj::value& execution) {
  const std::string type = text(execution, "outcome.type");
  const std::string message = text(execution, "outcome.message");
  if (type == "timed_out") print_note("the command ran into its timeout and was killed");
  if (type == "oom_killed")
    print_note("the command was killed because the sandbox ran out of memory");
  if (type == "killed_by_caller") print_note("the command was killed through the API");
  if (type == "sandbox_ended")
    print_note("the sandbox ended under the command" + (message.empty() ? "" : ": " + message));
  if (type == "interrupted")
    print_note("how the command ended is not known" + (message.empty() ? "" : ": " + message));
  if (flag(execution, "output.truncated")) print_note("not all of the output was kept");
}

// Output for --json: kept, not shown.
struct Collected {
  std::string stdout_bytes, stderr_bytes;
  void add(int stream, const std::string& data) {
    std::string& kept = stream == 2 ? stderr_bytes : stdout_bytes;
    kept += data.substr(0, kMaxCollected - std::min(kept.size(), kMaxCollected));
  }
  void put_into(bj::value& execution) const {
    if (!execution.is_object()) return;
    for (const auto& [name, kept] :
         {std::pair("stdout", &stdout_bytes), std::pair("stderr", &stderr_bytes)}) {
      execution.get_object()[name] = utf8_lossy(*kept);
      if (!is_utf8(*kept))
        execution.get_object()[std::string(name) + "_b64"] = base64_encode(*kept);
    }
  }
};

// While something is made that only we will take away again, signals wait; a second one ends the
// program at once.
void hold_signals(Loop& loop) {
  loop.on_signal = [&loop](int signal) {
    if (signal != SIGWINCH && loop.pending_signals > 1) loop.stop(kSignalBase + signal);
  };
}

// What this program's signals mean while a command runs: two go to the command (one that came
// before included), a third kills it. After SIGHUP there is no terminal at which a third could be asked for: then time does it.
class SignalPolicy {
 public:
  SignalPolicy(Loop& loop, std::shared_ptr<ExecutionStream> stream, bool is_terminal)
      : loop_(loop) {
    if (loop.pending_signals > 0) pass_on(stream, loop.last_signal);
    loop.on_signal = [this, stream, is_terminal](int signal) {
      if (signal == SIGWINCH) {
        const WindowSize size = window_size(STDIN_FILENO);
        if (is_terminal) stream->resize(size.cols, size.rows);
        return;
      }
      const int count = loop_.pending_signals;
      if (count <= 2) pass_on(stream, signal);
      if (count == 3) kill(stream);
      if (count >= 5) loop_.stop(kSignalBase + signal);  // the daemon does not answer
    };
  }
  SignalPolicy(const SignalPolicy&) = delete;
  SignalPolicy& operator=(const SignalPolicy&) = delete;
  ~SignalPolicy() {
    loop_.pending_signals = 0;
    hold_signals(loop_);
  }

 private:
  void kill(std::shared_ptr<ExecutionStream> stream) {
    spawn(loop_.executor, "kill",
          [](auto killed) -> Awaitable<void> { (void)co_await killed->kill(); }(std::move(stream)));
  }
  void pass_on(const std::shared_ptr<ExecutionStream>& stream, int signal) {
    stream->signal(signal);
    if (signal != SIGHUP) return;
    spawn(loop_.executor, "hangup", [](auto killed) -> Awaitable<void> {
      if (co_await sleep_for(kHangupGrace)) (void)co_await killed->kill();
    }(stream));
  }
  Loop& loop_;
};

// Follows a started execution to its end and returns it; standard input is forwarded.
Async<bj::value> attend(Loop& loop, std::shared_ptr<ExecutionStream> stream,
                        const ExecOptions& options, StdinMode stdin_mode, OutputSink sink) {
  const bool is_terminal = options.tty && stdin_mode == StdinMode::kTerminal;
  const SignalPolicy policy(loop, stream, is_terminal);
  std::optional<RawMode> raw;
  if (is_terminal) raw.emplace(STDIN_FILENO);
  stream->forward_stdin(stdin_mode);
  co_return co_await stream->follow(std::move(sink));
}

// Runs one command in a sandbox with this program's streams, and returns the exit status.
Async<int> execute(Loop& loop, const ApiClient& api, const Settings& settings, ExecOptions options,
                   StdinMode stdin_mode) {
  const std::string path = "/v1/sandboxes/" + http::percent_encode(options.sandbox) + "/executions";
  hold_signals(loop);
  GB_CO_TRY(const auto started, co_await api.call("POST", path, exec_body(options, stdin_mode)));
  if (options.detach) {
    settings.json ? print_json(started) : print(text(started, "id") + "\n");
    co_return kOk;
  }
  auto stream = std::make_shared<ExecutionStream>(loop, api, options.sandbox, text(started, "id"));
  OutputQueue output(loop);
  Collected collected;
  OutputSink sink = [&](int number, std::string data) -> Async<void> {
    if (!settings.json)
      co_return co_await output.push(number == 2 ? STDERR_FILENO : STDOUT_FILENO, std::move(data));
    collected.add(number, data);
    co_return Result<void>();
  };
  auto ended = co_await attend(loop, stream, options, stdin_mode, std::move(sink));
  auto flushed = co_await output.flush();
  const bool is_output_closed = !flushed || (!ended && ended.error().details.contains("output"));
  if (is_output_closed) {  // as SIGPIPE does to a local command
    (void)co_await stream->kill();
    co_return kBrokenPipe;
  }
  if (!ended) co_return fail(std::move(ended).error());
  if (settings.json) {
    collected.put_into(*ended);
    print_json(*ended);
  } else {
    explain(*ended);
  }
  co_return exit_code_of_execution(*ended);
}

// Keeps a sandbox alive while this program is.
Awaitable<void> renew(const ApiClient api, std::string path) {
  while (co_await sleep_for(kRenewEvery)) {
    bj::value body{{"lifetime_ms", kLease.count()}};
    auto renewed = co_await api.call("PATCH", path, std::move(body));
    if (!renewed && renewed.error().code == Code::kSandboxNotFound) co_return;
  }
}

using InSandbox = std::function<Async<int>(const ApiClient&, std::string id)>;

// Makes a sandbox, does `work` in it and kills it, whatever became of the work.
Async<int> make_work_kill(Loop& loop, const ApiClient& api, const RunOptions& options,
                          InSandbox work) {
  CreateOptions create = options.create;
  const bool renews = !create.lifetime && !options.keep;
  if (renews) create.lifetime = std::to_string(kLease.count()) + "ms";
  GB_CO_TRY(auto body, create_body(create));
  GB_CO_TRY(const auto created, co_await api.call("POST", "/v1/sandboxes", std::move(body)));
  const std::string id = text(created, "id");
  const std::string path = "/v1/sandboxes/" + http::percent_encode(id);
  if (renews) spawn(loop.executor, "renew", renew(api, path));
  Result<int> result = kSignalBase + loop.last_signal;
  if (loop.pending_signals == 0) result = co_await work(api, id);
  if (options.keep) {
    print_note("the sandbox stays: " + id);
    co_return result;
  }
  auto killed = co_await api.call("DELETE", path);
  if (!killed && result && killed.error().code != Code::kSandboxNotFound)
    co_return fail(std::move(killed).error());
  co_return result;
}

// The same, with a daemon of its own when none runs.
Async<int> in_new_sandbox(Loop& loop, const Settings& settings, const RunOptions& options,
                          InSandbox work) {
  hold_signals(loop);
  GB_CO_TRY(auto lease, co_await DaemonLease::acquire(settings));
  auto api = ApiClient::make(lease->target().url, lease->target().key);
  if (!api) co_return fail(std::move(api).error());
  Result<int> result = kSignalBase + loop.last_signal;
  if (loop.pending_signals == 0)
    result = co_await make_work_kill(loop, *api, options, std::move(work));
  auto released = co_await lease->release();
  if (!released) print_error(released.error(), settings.json);
  co_return result;
}

// A login shell: bash where there is one.
std::vector<std::string> shell_argv() {
  return {"/bin/sh", "-c",
          "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"};
}

// One page of output to the standard streams, or as JSON lines.
Async<void> show_chunks(OutputQueue& output, const bj::value& page, bool as_json) {
  for (const bj::value& chunk : items(page, "chunks")) {
    if (as_json) {
      GB_CO_TRYV(co_await output.push(STDOUT_FILENO, json::to_text(chunk) + "\n"));
    } else if (field(chunk, "dropped_bytes") != nullptr) {
      print_note(std::to_string(number(chunk, "dropped_bytes")) + " bytes of " +
                 text(chunk, "stream") + " were not kept");
    } else {
      const int fd = text(chunk, "stream") == "stderr" ? STDERR_FILENO : STDOUT_FILENO;
      GB_CO_TRYV(co_await output.push(fd, bytes(chunk, "data")));
    }
  }
  co_return Result<void>();
}

Async<void> show_logs(OutputQueue& output, const ApiClient& api, const LogsOptions& options,
                      bool as_json) {
  const std::string path = "/v1/sandboxes/" + http::percent_encode(options.sandbox) +
                           "/executions/" + http::percent_encode(options.execution) +
                           "/output?format=json";
  int64_t cursor = static_cast<int64_t>(options.since_cursor);
  while (true) {
    const std::string query =
        "&cursor=" + std::to_string(cursor) + (options.follow ? "&wait_ms=30000" : "");
    GB_CO_TRY(const auto page, co_await api.call("GET", path + query));
    GB_CO_TRYV(co_await show_chunks(output, page, as_json));
    const bool is_empty = items(page, "chunks").empty();
    cursor = number(page, "next_cursor");
    if (is_empty && (flag(page, "ended") || !options.follow)) break;
  }
  co_return co_await output.flush();
}

}  // namespace

int command_run(const Settings& settings, const RunOptions& options) {
  const StdinMode stdin_mode =
      choose_stdin(STDIN_FILENO, options.exec.interactive || options.exec.tty, true);
  return conclude(settings, run_loop([&](Loop& loop) -> Async<int> {
                    return in_new_sandbox(loop, settings, options,
                                          [&](const ApiClient& api, std::string id) -> Async<int> {
                                            ExecOptions exec = options.exec;
                                            exec.sandbox = std::move(id);
                                            return execute(loop, api, settings, std::move(exec),
                                                           stdin_mode);
                                          });
                  }));
}

int command_exec(const Settings& settings, const ExecOptions& options) {
  const bool wanted = !options.detach && (options.interactive || options.tty);
  const StdinMode stdin_mode = choose_stdin(STDIN_FILENO, wanted, false);
  return with_api(settings, [&](Loop& loop, const ApiClient& api) {
    return execute(loop, api, settings, options, stdin_mode);
  });
}

int command_shell(const Settings& settings, const RunOptions& options) {
  if (::isatty(STDIN_FILENO) != 1) {
    return conclude(settings, fail(Code::kInvalidArgument,
                                   "`shell` needs a terminal; use `run` or `exec` in scripts"));
  }
  ExecOptions exec = options.exec;
  exec.tty = true;
  if (exec.argv.empty()) exec.argv = shell_argv();
  Settings plain = settings;
  plain.json = false;
  if (!exec.sandbox.empty()) {
    return with_api(plain, [&](Loop& loop, const ApiClient& api) {
      return execute(loop, api, plain, exec, StdinMode::kTerminal);
    });
  }
  return conclude(plain, run_loop([&](Loop& loop) -> Async<int> {
                    return in_new_sandbox(loop, plain, options,
                                          [&](const ApiClient& api, std::string id) -> Async<int> {
                                            exec.sandbox = std::move(id);
                                            return execute(loop, api, plain, exec,
                                                           StdinMode::kTerminal);
                                          });
                  }));
}

int command_logs(const Settings& settings, const LogsOptions& options) {
  return with_api(settings, [&](Loop& loop, const ApiClient& api) -> Async<int> {
    OutputQueue output(loop);
    auto shown = co_await show_logs(output, api, options, settings.json);
    if (!shown && shown.error().code == Code::kCancelled) co_return kBrokenPipe;
    if (!shown) co_return fail(std::move(shown).error());
    co_return kOk;
  });
}

}  // namespace glovebox::cli
