// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <csignal>

#include "base/text.h"
#include "code/interpreter.h"

namespace glovebox::code {
namespace {

// The runner gives a sign of life far more often, by which the sandbox counts as used.
constexpr std::chrono::seconds kKeepalive{10};

std::string request_line(const RunSpec& spec) {
  std::string out = "{\"op\":\"run\",\"code\":";
  append_json_string(out, spec.code);
  for (const auto& [name, value] :
       {std::pair("language", &spec.language), std::pair("context", &spec.context),
        std::pair("cwd", &spec.cwd)}) {
    if (value->empty()) continue;
    out += ",\"" + std::string(name) + "\":";
    append_json_string(out, *value);
  }
  out += ",\"timeout_ms\":" + std::to_string(spec.timeout.count()) + ",\"env\":{";
  bool is_first = true;
  for (const auto& [name, value] : spec.env) {
    if (!std::exchange(is_first, false)) out += ',';
    append_json_string(out, name);
    out += ':';
    append_json_string(out, value);
  }
  return out + "}}\n";
}

}  // namespace

bool is_variable_name(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

Run::Run(Interpreter& interpreter, sandbox::Caller caller, std::string sandbox, RunSpec spec)
    : interpreter_(interpreter),
      caller_(std::move(caller)),
      sandbox_(std::move(sandbox)),
      spec_(std::move(spec)) {}

Run::~Run() {
  if (!has_ended_) stop();
}

void Run::stop() {
  is_stopped_ = true;
  if (conversation_) conversation_->close();
}

Async<Event> Run::take() {
  if (!has_begun_) {
    GB_CO_TRYV(interpreter_.service_.get(caller_, sandbox_));
    if (!interpreter_.oom_kills_.contains(sandbox_))
      (void)co_await interpreter_.was_oom(caller_, sandbox_);
    GB_CO_TRY(const auto opened,
              co_await interpreter_.open(caller_, sandbox_, request_line(spec_), &conversation_));
    has_begun_ = true;
    co_return decode_event(opened.first);
  }
  auto line = co_await conversation_->line();
  if (!line) co_return co_await broken(line.error());
  if (!*line)
    co_return co_await broken(
        Error{Code::kSandboxIo, "the code runner in the sandbox has ended", {}});
  co_return decode_event(**line);
}

Async<Event> Run::next() {
  const auto self = shared_from_this();
  if (is_stopped_) co_return fail(Code::kCancelled, "the run was stopped");
  if (is_broken_) {
    has_ended_ = true;
    Event end;
    end.kind = Event::Kind::kEnd;
    co_return end;
  }
  auto event = co_await take();
  while (event && event->kind == Event::Kind::kKeepalive && Clock::now() < shown_ + kKeepalive &&
         !is_stopped_)
    event = co_await take();
  shown_ = Clock::now();
  if (is_stopped_) co_return fail(Code::kCancelled, "the run was stopped");
  if (!event) {
    stop();
    if (event.error().code != Code::kUnsupported) co_return event;
    co_return fail(interpreter_.without_language(event.error(), sandbox_));
  }
  if (event->kind == Event::Kind::kError && event->problem == "died")
    co_return co_await explained(std::move(*event));
  if (event->kind == Event::Kind::kEnd && !is_broken_) {
    has_ended_ = true;
    const auto executor = co_await this_executor();
    interpreter_.linger(std::move(conversation_), executor);
  }
  co_return event;
}

Async<Event> Run::first(sandbox::Millis patience) {
  const auto self = shared_from_this();
  co_return co_await first_to_say([this] { return next(); }, patience);
}

// The connection ended under the cell: with its sandbox, or because what serves it in there died.
Async<Event> Run::broken(Error why) {
  if (is_stopped_) co_return fail(Code::kCancelled, "the run was stopped");
  is_broken_ = true;
  Event event;
  event.kind = Event::Kind::kError;
  const auto info = interpreter_.service_.get_unchecked(sandbox_);
  if (info && info->ended) {
    event.name = "SandboxEnded";
    event.problem = "sandbox_ended";
    event.value = "the sandbox ended: " +
                  (info->ended->reason == "oom" ? "it ran out of memory" : info->ended->reason);
    co_return event;
  }
  event.name = "KernelDied";
  event.problem = "died";
  event.value = why.message;
  event.signal = SIGKILL;
  co_return event;
}

// Why a kernel was killed, when the memory limit was it. Where the sandbox's kernel runs in user
// space, the exit status is one of its own making.
Async<Event> Run::explained(Event event) {
  const auto info = interpreter_.service_.get_unchecked(sandbox_);
  if (!info || (event.signal != SIGKILL && info->tier != runtime::Tier::kGvisor)) co_return event;
  const auto oom = co_await interpreter_.was_oom(caller_, sandbox_);
  if (!oom || !*oom) co_return event;
  event.name = "OutOfMemory";
  event.value = "out of memory: the kernel was killed at the sandbox's limit of " +
                human_bytes(info->limits.memory_bytes) + "; the context's state is lost";
  co_return event;
}

}  // namespace glovebox::code
