// SPDX-License-Identifier: Apache-2.0
#include "code/interpreter.h"

#include <algorithm>

#include "base/text.h"
#include "code/runner_files.h"
#include "metrics/metrics.h"

namespace glovebox::code {
namespace {

using sandbox::Caller;
using sandbox::Millis;

constexpr Millis kStartPatience{90'000};
constexpr size_t kPiece = 64 << 10;
constexpr size_t kAtOnce = 60'000;  // bytes that a connection takes before it is known to be one
constexpr size_t kMaxRemembered = 4096;
constexpr size_t kMaxComplaint = 600;
constexpr int kMostAttempts = 6;
constexpr Millis kDying{50};
constexpr const char* kRunnerName = "code-runner";

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

class Owned final : public sandbox::Inside {
 public:
  Owned(sandbox::SandboxService& service, Caller caller, std::string sandbox)
      : service_(service), caller_(std::move(caller)), sandbox_(std::move(sandbox)) {}
  Async<sandbox::ExecutionPtr> execute(sandbox::ExecSpec spec) override {
    return service_.execute(caller_, sandbox_, std::move(spec));
  }
  Async<std::unique_ptr<http::Stream>> dial(uint16_t port,
                                            sandbox::SandboxService::Dialling how) override {
    return service_.dial(caller_, sandbox_, port, how);
  }

 private:
  sandbox::SandboxService& service_;
  const Caller caller_;
  const std::string sandbox_;
};

// `reason`: call, for a cell that waits for it, or pool.
metrics::Counter& runner_starts(std::string reason) {
  return metrics::registry().counter("glovebox_code_runner_starts_total",
                                     "Code runners that were started, by for what.",
                                     {{"for", std::move(reason)}});
}

Async<void> start_runner(sandbox::Inside& inside, std::string reason) {
  sandbox::ExecSpec spec;
  spec.argv = {"python3", "-c", std::string(kBootstrap)};
  spec.stdin_data = runner_files();
  spec.cwd = "/";
  spec.name = kRunnerName;
  spec.background = spec.detached = true;
  const Deadline deadline = after(kStartPatience);
  GB_CO_TRY(const auto started, co_await inside.execute(std::move(spec)));
  auto line = co_await first_line(started, deadline);
  Result<void> ready = line ? decode_ready(*line) : Result<void>(fail(line.error()));
  if (!ready) (void)co_await started->kill();
  if (!ready) co_return ready;
  runner_starts(std::move(reason)).add();
  co_return ready;
}

std::string warm_request(const std::vector<std::string>& languages) {
  std::string out = "{\"op\":\"warm\",\"languages\":";
  char separator = '[';
  for (const std::string& language : languages) {
    out += std::exchange(separator, ',');
    append_json_string(out, language);
  }
  return out + "]}\n";
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

Interpreter::Interpreter(sandbox::SandboxService& service) : service_(service) {
  for (const char* reason : {"call", "pool"}) runner_starts(reason);  // none yet, which is a number
}

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
  Owned inside(service_, caller, sandbox);
  auto started = co_await start_runner(inside, "call");
  if (!started && started.error().code == Code::kCommandNotFound) {
    co_return fail(without_language(Error{Code::kUnsupported, "it has no python3", {}}, sandbox));
  }
  co_return started;
}

Async<void> Interpreter::warm(sandbox::Inside& inside, std::vector<std::string> languages) {
  GB_CO_TRYV(co_await start_runner(inside, "pool"));
  GB_CO_TRY(const auto opened, co_await open_once(inside, warm_request(languages), nullptr));
  GB_CO_TRYV(decode_ok(opened.first));
  co_return Result<void>();
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

Async<std::string> Interpreter::answer(Conversation& conversation) {
  GB_CO_TRY(auto line, co_await conversation.line());
  if (!line) co_return fail(Code::kSandboxIo, "the code runner in the sandbox gave no answer");
  co_return std::move(*line);
}

Async<Interpreter::Opened> Interpreter::open_once(sandbox::Inside& inside,
                                                  const std::string& request,
                                                  std::shared_ptr<Conversation>* place) {
  using Dialling = sandbox::SandboxService::Dialling;
  const auto how = request.size() > kAtOnce ? Dialling::kConfirmed : Dialling::kAtOnce;
  GB_CO_TRY(auto stream, co_await inside.dial(kRunnerPort, how));
  auto conversation = std::make_shared<Conversation>(std::move(stream));
  if (place != nullptr) *place = conversation;
  GB_CO_TRYV(co_await conversation->send(request));
  GB_CO_TRY(auto line, co_await answer(*conversation));
  co_return Opened{std::move(conversation), std::move(line)};
}

// Only a runner that lives has the port for sure; what else listens there may not be what the
// environment is for. One whose execution has ended with a reset may go on in the memory of then.
Async<bool> Interpreter::has_runner(const Caller& caller, const std::string& sandbox,
                                    bool is_asked) {
  GB_CO_TRY(const auto info, service_.get(caller, sandbox));
  GB_CO_TRY(const auto executions, service_.executions(caller, sandbox, {}, SIZE_MAX, ""));
  std::set<int64_t> ended;
  for (const sandbox::ExecInfo& e : executions.items) {
    if (e.name != kRunnerName || !e.background) continue;
    if (!e.outcome) co_return true;
    ended.insert(e.pid);
  }
  if (!is_asked || ended.empty()) co_return false;
  GB_CO_TRY(const auto processes, co_await service_.processes(caller, sandbox));
  co_return std::ranges::any_of(processes, [&](const sandbox::ProcessInfo& p) {
    return ended.contains(p.pid) && p.user == info.user;
  });
}

Async<std::string> Interpreter::introduced(const Caller& caller, const std::string& sandbox,
                                           const std::string& request, bool is_asked) {
  if (introduced_.contains(sandbox)) co_return request;
  GB_CO_TRY(const bool has_it, co_await has_runner(caller, sandbox, is_asked));
  if (!has_it) co_return request;
  GB_CO_TRY(const auto info, service_.get(caller, sandbox));
  sandbox::StringMap env = info.secrets;
  env.insert(info.env.begin(), info.env.end());
  std::string out = request.substr(0, request.rfind('}')) + ",\"owner\":{\"env\":{";
  bool is_first = true;
  for (const auto& [name, value] : env) {
    if (!std::exchange(is_first, false)) out += ',';
    append_json_string(out, name);
    out += ':';
    append_json_string(out, value);
  }
  co_return out + "}}}\n";
}

Async<Interpreter::Opened> Interpreter::open(const Caller& caller, const std::string& sandbox,
                                             std::string request,
                                             std::shared_ptr<Conversation>* place) {
  Owned inside(service_, caller, sandbox);
  bool has_started = false, is_asked = false;
  Error last{
      Code::kSandboxIo, "the code runner in the sandbox does not come to serve a request", {}};
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    GB_CO_TRY(const std::string told, co_await introduced(caller, sandbox, request, is_asked));
    const bool introduces = told.size() != request.size();
    auto opened = co_await open_once(inside, told, place);
    if (opened) {
      const Wish wish = decode_wish(opened->first);
      is_asked = wish == Wish::kOwner;
      if (is_asked) introduced_.erase(sandbox);  // it is from the pool again: a reset, say
      if (is_asked || wish == Wish::kAgain) continue;
      forget_ended();
      introduced_.insert(sandbox);
      if (wish == Wish::kMet) {
        GB_CO_TRY(opened->first, co_await answer(*opened->conversation));
      }
      co_return opened;
    }
    last = opened.error();
    if (last.code == Code::kPreviewUnreachable && !std::exchange(has_started, true)) {
      GB_CO_TRYV(co_await start_once(caller, sandbox));
    } else if (introduces && last.code == Code::kSandboxIo) {
      co_await sleep_for(kDying);  // it ended before it had met its owner, so nothing has run
    } else {
      break;
    }
  }
  co_return fail(last);
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
  const auto has_ended = [this](const std::string& sandbox) {
    const auto info = service_.get_unchecked(sandbox);
    return !info || info->state == sandbox::State::kEnded;
  };
  if (oom_kills_.size() >= kMaxRemembered)
    std::erase_if(oom_kills_, [&](const auto& entry) { return has_ended(entry.first); });
  if (introduced_.size() >= kMaxRemembered) std::erase_if(introduced_, has_ended);
}

Async<bool> Interpreter::was_oom(const Caller& caller, const std::string& sandbox) {
  GB_CO_TRY(const auto usage, co_await service_.usage(caller, sandbox));
  forget_ended();
  uint64_t& seen = oom_kills_[sandbox];
  co_return std::exchange(seen, usage.oom_kills) < usage.oom_kills;
}

}  // namespace glovebox::code
