// SPDX-License-Identifier: Apache-2.0
#include "code/interpreter.h"

#include <algorithm>

#include "base/text.h"
#include "code/runner_files.h"

namespace glovebox::code {
namespace {

using sandbox::Caller;
using sandbox::Millis;

constexpr Millis kStartPatience{90'000};
constexpr size_t kPiece = 64 << 10;
constexpr size_t kAtOnce = 60'000;  // bytes that a connection takes before it is known to be one
constexpr size_t kMaxRemembered = 4096;
constexpr size_t kMaxComplaint = 600;

// The runner's sources come on standard input: it is always the one that this daemon can talk to,
// whatever the template's age.
constexpr std::string_view kBootstrap =
    "import "
    "json,sys;F=json.load(sys.stdin.buffer);exec(compile(F['server.py'],'<glovebox-code>','exec'),"
    "{'__name__':'glovebox_code','FILES':F,'PORT':F['port']})";

std::string runner_files() {
  const std::pair<std::string_view, std::string_view> files[] = {
      {"server.py", embedded_code_server_py()},
      {"glovebox_kernels.py", embedded_code_kernels_py()},
      {"glovebox_kernel.py", embedded_code_python_kernel_py()},
      {"glovebox_charts.py", embedded_code_charts_py()},
      {"node_kernel.js", embedded_code_node_kernel_js()}};
  std::string out = "{\"port\":" + std::to_string(kRunnerPort);
  for (const auto& [name, text] : files) {
    out += ",\"" + std::string(name) + "\":";
    append_json_string(out, text);
  }
  return out + "}";
}

std::string request_of(
    std::string_view op,
    std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  std::string out = "{\"op\":\"" + std::string(op) + "\"";
  for (const auto& [name, value] : fields) {
    if (value.empty()) continue;
    out += ",\"" + std::string(name) + "\":";
    append_json_string(out, value);
  }
  return out + "}\n";
}

// The first line of an execution's standard output, or why there is none.
Async<std::string> first_line(const sandbox::ExecutionPtr& execution, Deadline deadline) {
  while (true) {
    const bool had_ended = execution->ended();
    GB_CO_TRY(const auto chunks, co_await execution->read(0, kPiece));
    std::string out, complaint;
    uint64_t seen = 0;
    for (const auto& chunk : chunks) {
      (chunk.stream == sandbox::Stream::kStdout ? out : complaint) += chunk.data;
      seen = chunk.cursor + chunk.data.size();
    }
    if (const size_t end = out.find('\n'); end != out.npos) co_return out.substr(0, end);
    if (had_ended) {
      if (complaint.size() > kMaxComplaint) complaint.erase(0, complaint.size() - kMaxComplaint);
      co_return fail(Code::kSandboxIo, "the code runner did not start: " + utf8_lossy(complaint));
    }
    const bool more = co_await execution->wait_output(seen, deadline);
    if (!more && Clock::now() >= deadline)
      co_return fail(Code::kTimeout, "the code runner did not start in time");
  }
}

}  // namespace

// ---- Conversation ----

Async<std::optional<std::string>> Conversation::line() {
  size_t searched = at_;
  while (true) {
    if (const size_t end = held_.find('\n', searched); end != held_.npos) {
      std::string out = held_.substr(at_, end - at_);
      at_ = end + 1;
      if (at_ == held_.size()) {
        held_.clear();
        at_ = 0;
      }
      co_return out;
    }
    held_.erase(0, at_);
    at_ = 0;
    searched = held_.size();
    if (held_.size() > kMaxLine)
      co_return fail(Code::kSandboxIo,
                     "the code runner in the sandbox sent a line that is too long");
    held_.resize(searched + kPiece);
    auto n = co_await stream_->read_some(held_.data() + searched, kPiece);
    held_.resize(searched + n.value_or(0));
    if (!n) co_return fail(n.error());
    if (*n == 0) co_return std::nullopt;
  }
}

Awaitable<void> Conversation::rest() {
  char waste[256];
  while (true) {
    const auto n = co_await stream_->read_some(waste, sizeof waste);
    if (!n || *n == 0) co_return;
  }
}

// ---- The runner ----

struct Interpreter::Starting {
  Notifier done;
  std::optional<Result<void>> result;
};

Error Interpreter::without_language(Error error, const std::string& sandbox) const {
  if (error.details.contains("template")) return error;  // it says so already
  const auto info = service_.get_unchecked(sandbox);
  const std::string name = info ? info->template_name : "?";
  return Error{Code::kUnsupported,
               "the template \"" + name + "\" cannot run this: " + error.message +
                   ". The template \"interpreter\" can",
               {{"template", name}}};
}

Async<void> Interpreter::start(const Caller& caller, const std::string& sandbox) {
  sandbox::ExecSpec spec;
  spec.argv = {"python3", "-c", std::string(kBootstrap)};
  spec.stdin_data = runner_files();
  spec.cwd = "/";
  spec.name = "code-runner";
  spec.background = spec.detached = true;
  const Deadline deadline = after(kStartPatience);
  auto started = co_await service_.execute(caller, sandbox, std::move(spec));
  if (!started && started.error().code == Code::kCommandNotFound) {
    co_return fail(without_language(Error{Code::kUnsupported, "it has no python3", {}}, sandbox));
  }
  if (!started) co_return fail(started.error());
  auto line = co_await first_line(*started, deadline);
  Result<void> ready = line ? decode_ready(*line) : Result<void>(fail(line.error()));
  if (!ready) (void)co_await (*started)->kill();
  co_return ready;
}

// Calls that come together start one.
Async<void> Interpreter::start_once(const Caller& caller, const std::string& sandbox) {
  if (const auto found = starting_.find(sandbox); found != starting_.end()) {
    const auto other = found->second;
    while (!other->result) {
      const bool woken = co_await other->done.wait();
      if (!woken) co_return fail(Code::kCancelled, "the call was cancelled");
    }
    co_return *other->result;
  }
  const auto mine = starting_[sandbox] = std::make_shared<Starting>();
  auto result = co_await start(caller, sandbox);
  mine->result = result;
  starting_.erase(sandbox);
  mine->done.notify();
  co_return result;
}

Async<Interpreter::Opened> Interpreter::open_once(const Caller& caller, const std::string& sandbox,
                                                  const std::string& request,
                                                  std::shared_ptr<Conversation>* place) {
  using Dialling = sandbox::SandboxService::Dialling;
  const auto how = request.size() > kAtOnce ? Dialling::kConfirmed : Dialling::kAtOnce;
  GB_CO_TRY(auto stream, co_await service_.dial(caller, sandbox, kRunnerPort, how));
  auto conversation = std::make_shared<Conversation>(std::move(stream));
  if (place != nullptr) *place = conversation;
  GB_CO_TRYV(co_await conversation->send(request));
  GB_CO_TRY(auto line, co_await conversation->line());
  if (!line) co_return fail(Code::kSandboxIo, "the code runner in the sandbox gave no answer");
  co_return Opened{std::move(conversation), std::move(*line)};
}

Async<Interpreter::Opened> Interpreter::open(const Caller& caller, const std::string& sandbox,
                                             std::string request,
                                             std::shared_ptr<Conversation>* place) {
  auto opened = co_await open_once(caller, sandbox, request, place);
  if (opened || opened.error().code != Code::kPreviewUnreachable) co_return opened;
  GB_CO_TRYV(co_await start_once(caller, sandbox));
  co_return co_await open_once(caller, sandbox, request, place);
}

Async<std::string> Interpreter::ask(const Caller& caller, const std::string& sandbox,
                                    const std::string& request) {
  GB_CO_TRYV(service_.get(caller, sandbox));
  GB_CO_TRY(auto opened, co_await open(caller, sandbox, request, nullptr));
  co_return std::move(opened.first);
}

std::shared_ptr<Run> Interpreter::run(const Caller& caller, const std::string& sandbox,
                                      RunSpec spec) {
  return std::make_shared<Run>(*this, caller, sandbox, std::move(spec));
}

Async<std::vector<Context>> Interpreter::contexts(const Caller& caller,
                                                  const std::string& sandbox) {
  GB_CO_TRY(const auto line, co_await ask(caller, sandbox, request_of("list", {})));
  co_return decode_contexts(line);
}

Async<Context> Interpreter::create(const Caller& caller, const std::string& sandbox,
                                   const std::string& language, const std::string& cwd) {
  GB_CO_TRY(
      const auto line,
      co_await ask(caller, sandbox, request_of("create", {{"language", language}, {"cwd", cwd}})));
  auto made = decode_context(line);
  if (!made && made.error().code == Code::kUnsupported)
    co_return fail(without_language(made.error(), sandbox));
  co_return made;
}

Async<void> Interpreter::remove(const Caller& caller, const std::string& sandbox,
                                const std::string& context) {
  GB_CO_TRY(const auto line,
            co_await ask(caller, sandbox, request_of("delete", {{"context", context}})));
  GB_CO_TRYV(decode_ok(line));
  co_return Result<void>();
}

Async<Context> Interpreter::restart(const Caller& caller, const std::string& sandbox,
                                    const std::string& context) {
  GB_CO_TRY(const auto line,
            co_await ask(caller, sandbox, request_of("restart", {{"context", context}})));
  co_return decode_context(line);
}

Async<bool> Interpreter::interrupt(const Caller& caller, const std::string& sandbox,
                                   const std::string& context) {
  GB_CO_TRY(const auto line,
            co_await ask(caller, sandbox, request_of("interrupt", {{"context", context}})));
  co_return decode_ok(line);
}

// ---- What goes on after a cell ----

void Interpreter::linger(std::shared_ptr<Conversation> conversation, const Executor& executor) {
  std::erase_if(lingering_, [](const auto& weak) { return weak.expired(); });
  lingering_.push_back(conversation);
  spawn(executor, "code.linger", [](std::shared_ptr<Conversation> held) -> Awaitable<void> {
    co_await held->rest();
  }(std::move(conversation)));
}

void Interpreter::stop() {
  for (const auto& weak : lingering_) {
    if (const auto conversation = weak.lock()) conversation->close();
  }
}

void Interpreter::forget_ended() {
  if (oom_kills_.size() < kMaxRemembered) return;
  std::erase_if(oom_kills_, [this](const auto& entry) {
    const auto info = service_.get_unchecked(entry.first);
    return !info || info->state == sandbox::State::kEnded;
  });
}

Async<bool> Interpreter::was_oom(const Caller& caller, const std::string& sandbox) {
  GB_CO_TRY(const auto usage, co_await service_.usage(caller, sandbox));
  forget_ended();
  uint64_t& seen = oom_kills_[sandbox];
  co_return std::exchange(seen, usage.oom_kills) < usage.oom_kills;
}

}  // namespace glovebox::code
