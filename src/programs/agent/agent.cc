// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/agent.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "programs/agent/resume.h"
#include "programs/agent/tree.h"

namespace glovebox::agent {
namespace {

using channel::Type;
constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kNonceBytes = 16;
constexpr size_t kMaxPingBytes = 64;
constexpr int kEndRounds = 100;
constexpr std::chrono::milliseconds kInputRetry{200};
constexpr std::chrono::milliseconds kOrphanRetry{5};
constexpr std::chrono::milliseconds kClockLook{1};

std::string pid_namespace() {
  char target[64];
  const ssize_t n = ::readlink("/proc/self/ns/pid", target, sizeof target);
  return n > 0 ? std::string(target, static_cast<size_t>(n)) : std::string();
}

std::optional<std::string> parse_nonce(const json::object& hello) {
  const auto text = text_field(hello, "nonce");
  if (!text || text->size() != 2 * kNonceBytes) return std::nullopt;
  std::string nonce;
  for (size_t i = 0; i < text->size(); i += 2) {
    char* end = nullptr;
    const std::string digits = text->substr(i, 2);
    nonce.push_back(static_cast<char>(std::strtol(digits.c_str(), &end, 16)));
    if (end != digits.c_str() + 2) return std::nullopt;
  }
  return nonce;
}

[[noreturn]] void end_with_everything() {
  for (int round = 0; round < kEndRounds; ++round) {
    const auto left = descendants(all_processes(), ::getpid());
    for (const Process& process : left) signal_process(process, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG | __WALL) > 0) {
    }
    if (left.empty()) break;
  }
  ::_exit(0);
}

uint16_t get_u16(const char* in) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(options),
      outbox_(loop_, options.to_daemon, [this] { pump_all(); }),
      killer_(loop_),
      setup_(users_),
      services_{loop_,   outbox_,          supervisors_,
                killer_, oom_,   options.dev_null, [this](const std::string& id) { remove_execution(id); }},
      requests_(loop_, outbox_,
                {users_, defaults_.default_user, [this] { return execution_roots(); },
                 [this] { return supervisors_.pids(); }}) {
  defaults_.own_open_files = options_.open_files;
  loop_.watch(options_.from_daemon, EPOLLIN, [this](uint32_t) { on_input(); });
  loop_.watch(supervisors_.event_fd(), EPOLLIN, [this](uint32_t) {
    supervisors_.drain([](Supervisor& supervisor) {
      if (supervisor.owner != nullptr)
        static_cast<Execution*>(supervisor.owner)->on_supervisor(supervisor);
    });
  });
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const int signals = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  GB_ASSERT(signals >= 0);
  loop_.watch(signals, EPOLLIN, [this, signals](uint32_t) {
    signalfd_siginfo info;
    while (::read(signals, &info, sizeof info) > 0) {
    }
    on_child_signal();
  });
  loop_.after_round([this] { supervisors_.keep_spare(); });
  supervisors_.keep_spare();
}

void Agent::run() {
  loop_.run();
}

// ---- Input ----

void Agent::on_input() {
  char buffer[kReadBytes];
  const ssize_t n = ::read(options_.from_daemon, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return on_end_of_input();
  inbox_.feed(std::string_view(buffer, static_cast<size_t>(n)));
  Inbox::Message message;
  while (inbox_.next(&message)) handle(message);
}

// The runtime keeps both pipes open on the sandbox's side, so this is no daemon's death. As an
// ordinary process the agent ends with its input; as init it cannot, and looks again.
void Agent::on_end_of_input() {
  if (::getpid() != 1) end_with_everything();
  loop_.change(options_.from_daemon, 0);
  loop_.in(kInputRetry, [this] { loop_.change(options_.from_daemon, EPOLLIN); });
}

void Agent::handle(Inbox::Message& message) {
  const uint32_t channel = message.channel;
  switch (message.type) {
    case Type::kHello:
      return on_hello(message);
    case Type::kPing:
      return outbox_.send(0, Type::kPong,
                          std::string_view(message.payload).substr(0, kMaxPingBytes));
    case Type::kPrepare:
      return on_prepare();
    case Type::kProceed:
      return on_proceed(message);
    case Type::kExec:
      return on_exec(channel, message);
    case Type::kAttach:
      return on_attach(channel, message);
    case Type::kRequest:
      return requests_.open(channel, message);
    case Type::kDataToAgent:
    case Type::kEndToAgent:
    case Type::kWindowToAgent:
    case Type::kCancel:
      return requests_.handle(message);
    default:
      break;
  }
  auto found = channels_.find(channel);
  if (found != channels_.end()) for_execution(*found->second, message);
}

void Agent::for_execution(Execution& execution, Inbox::Message& message) {
  const std::string& payload = message.payload;
  switch (message.type) {
    case Type::kStdin:
      return execution.on_stdin(payload);
    case Type::kStdinEof:
      return execution.on_stdin_eof();
    case Type::kAck:
      if (payload.size() < channel::kStreamHeaderBytes) return;
      return execution.on_ack(static_cast<uint8_t>(payload[0]),
                              channel::get_u64(payload.data() + 8));
    case Type::kDrain:
      if (payload.empty()) return;
      return execution.on_drain(static_cast<uint8_t>(payload[0]));
    case Type::kResize:
      if (payload.size() < 4) return;
      return execution.on_resize(get_u16(payload.data()), get_u16(payload.data() + 2));
    case Type::kForget:
      return execution.on_forget();
    case Type::kSignal: {
      const auto object = parse_object(payload);
      if (!object) return;
      const auto number = int_field(*object, "signal", SIGTERM, 1, 64);
      const auto tree = bool_field(*object, "tree", true);
      if (number && tree) execution.signal(static_cast<int>(*number), *tree);
      return;
    }
    case Type::kKill: {
      const auto object = parse_object(payload);
      const bool timed_out = object && text_field(*object, "reason").value_or("") == "timed_out";
      return execution.kill(timed_out ? Execution::Outcome::kTimedOut
                                      : Execution::Outcome::kKilledByCaller);
    }
    default:
      return;
  }
}

// ---- HELLO ----

void Agent::on_hello(Inbox::Message& message) {
  auto hello = parse_object(message.payload);
  // A daemon that died within its HELLO has left the beginning of one; ours starts at one of the
  // frames after that.
  for (size_t i = 1; !hello && i < message.part_starts.size(); ++i) {
    hello = parse_object(std::string_view(message.payload).substr(message.part_starts[i]));
  }
  if (!hello || int_field(*hello, "version", 0, 1, 1).value_or(0) != 1) return;
  const auto nonce = parse_nonce(*hello);
  if (!nonce) return;
  inbox_.forget_parts();
  channels_.clear();
  for (auto& [id, execution] : executions_) execution->detach();
  std::erase_if(executions_, [](const auto& entry) { return entry.second->is_done(); });
  requests_.restart(outbox_.restart(channel::sync_mark(*nonce)));
  is_held_ = false;
  apply_hello(*hello);
  std::optional<json::object> resumed;
  const json::value* identity = find_field(*hello, "resumed");
  if (identity != nullptr && identity->is_object()) resumed = resume(*hello, identity->get_object(), options_.freezer);
  options_.freezer.go_on();
  outbox_.send(0, Type::kHelloOk, hello_answer(std::move(resumed)));
}

// From here to PROCEED the clock is looked at often: the longest time between two looks is how long everything stood still. Where the
// agent itself stops the rest, it is all the time until PROCEED.
void Agent::on_prepare() {
  options_.freezer.stop();  // before the answer, which may be the last thing that it does here
  outbox_.hold(Type::kPrepared);
  is_held_ = true;
  longest_gap_ = {};
  held_since_ = looked_at_ = std::chrono::steady_clock::now();
  loop_.in(kClockLook, [this] { look_at_clock(); });
}

void Agent::look_at_clock() {
  if (!is_held_) return;
  const auto now = std::chrono::steady_clock::now();
  longest_gap_ = std::max(longest_gap_, std::chrono::duration_cast<std::chrono::microseconds>(now - looked_at_));
  looked_at_ = now;
  loop_.in(kClockLook, [this] { look_at_clock(); });
}

void Agent::on_proceed(const Inbox::Message& message) {
  look_at_clock();
  if (is_held_ && options_.freezer.works()) longest_gap_ = std::chrono::duration_cast<std::chrono::microseconds>(looked_at_ - held_since_);
  // A machine's clock stands still with it.
  if (options_.may_change_system && message.payload.size() == 8) {
    set_clock(static_cast<int64_t>(channel::get_u64(message.payload.data())), kCopyToleranceNs);
  }
  options_.freezer.go_on();
  is_held_ = false;
  outbox_.go_on();
  std::string stall;
  channel::append_u64(stall, static_cast<uint64_t>(longest_gap_.count()));
  outbox_.send(0, Type::kProceeded, stall);
}

void Agent::apply_hello(const json::object& hello) {
  auto env = parse_env(hello, "env");
  if (env) defaults_.env = *std::move(env);
  defaults_.default_user = text_field(hello, "default_user", "root").value_or("root");
  const json::value* limits = find_field(hello, "limits");
  if (limits != nullptr && limits->is_object()) {
    const auto& object = limits->get_object();
    defaults_.open_files =
        static_cast<uint64_t>(int_field(object, "open_files", 0, 0, INT64_MAX).value_or(0));
    defaults_.processes =
        static_cast<uint64_t>(int_field(object, "processes", 0, 0, INT64_MAX).value_or(0));
  }
  if (options_.may_change_system) setup_.apply(hello, defaults_.default_user);
}

std::string Agent::hello_answer(std::optional<json::object> resumed) const {
  const auto boot = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - options_.started);
  json::array executions;
  for (const auto& [id, execution] : executions_) executions.push_back(execution->summary());
  json::object answer{{"version", 1},
                      {"agent", GLOVEBOX_VERSION},
                      {"pid_namespace", pid_namespace()},
                      {"boot_ms", boot.count()},
                      {"executions", std::move(executions)}};
  if (resumed) answer["resumed"] = std::move(*resumed);
  return to_text(answer);
}

// ---- Executions ----

void Agent::on_exec(uint32_t channel, Inbox::Message& message) {
  Result<void> started = fail(Code::kArgumentsTooLong, "EXEC is longer than 1 MiB");
  if (!message.too_long) {
    const auto object = parse_object(message.payload);
    started = object ? start_execution(channel, *object) : fail(object.error());
  }
  if (!started) outbox_.send(channel, Type::kFailed, failed_payload(started.error()));
}

Result<void> Agent::start_execution(uint32_t channel, const json::object& object) {
  if (executions_.size() >= kMaxExecutions) {
    return fail(Code::kCapacity, "4096 executions are known already");
  }
  GB_TRY(ExecRequest request, parse_exec(object, defaults_, users_));
  auto known = executions_.find(request.id);
  if (known != executions_.end() && known->second->is_done()) remove_execution(request.id);
  if (executions_.contains(request.id))
    return fail(Code::kAlreadyExists, "execution " + request.id);
  auto execution = std::make_unique<Execution>(services_, std::move(request));
  GB_TRYV(execution->start(channel));
  channels_[channel] = execution.get();
  executions_[execution->id()] = std::move(execution);
  return {};
}

void Agent::on_attach(uint32_t channel, const Inbox::Message& message) {
  const auto object = parse_object(message.payload);
  const auto id = object ? text_field(*object, "id") : fail(object.error());
  auto found = id ? executions_.find(*id) : executions_.end();
  if (found == executions_.end() || found->second->is_done()) {
    const Error error{Code::kExecutionNotFound, "no such execution", {}};
    return outbox_.send(channel, Type::kFailed, failed_payload(error));
  }
  Execution& execution = *found->second;
  channels_.erase(execution.channel());
  channels_[channel] = &execution;
  execution.attach(
      channel, static_cast<uint64_t>(int_field(*object, "stdout", 0, 0, INT64_MAX).value_or(0)),
      static_cast<uint64_t>(int_field(*object, "stderr", 0, 0, INT64_MAX).value_or(0)));
}

void Agent::remove_execution(const std::string& id) {
  auto found = executions_.find(id);
  if (found == executions_.end()) return;
  channels_.erase(found->second->channel());
  const auto last = std::move(found->second);  // destroyed after it has left the tables
  executions_.erase(found);
}

// The outbox has room: everybody may send, another one first each time.
void Agent::pump_all() {
  std::vector<Execution*> order;
  for (auto& [id, execution] : executions_) order.push_back(execution.get());
  for (size_t i = 0; i < order.size() && outbox_.has_room(); ++i) {
    order[(next_pumped_ + i) % order.size()]->pump();
  }
  ++next_pumped_;
  requests_.pump();
}

ExecutionRoots Agent::execution_roots() const {
  ExecutionRoots roots;
  for (const auto& [id, execution] : executions_) {
    if (execution->supervisor_pid() != 0) roots.emplace_back(execution->supervisor_pid(), id);
  }
  return roots;
}

// ---- The agent's own children ----

void Agent::on_child_signal() {
  for (;;) {
    int status = 0;
    struct rusage usage = {};
    const pid_t pid = ::wait4(-1, &status, WNOHANG | WUNTRACED | __WALL, &usage);
    if (pid <= 0) break;
    Supervisor* supervisor = supervisors_.find(pid);
    if (WIFSTOPPED(status)) {
      if (supervisor != nullptr)
        ::kill(pid, SIGCONT);  // someone's kill -STOP -1; nobody else would wake it
    } else if (supervisor != nullptr) {
      on_supervisor_died(*supervisor);
    } else {
      for (auto& [id, execution] : executions_) {
        if (execution->main_pid() == pid) execution->on_orphan_reaped(pid, status, usage);
      }
    }
  }
  if (!orphaned_.empty()) kill_orphans();
}

// Either told to exit, or killed by root inside the sandbox (kill -9 -1). Then its tree has come to
// the agent, which cannot tell such trees apart and ends them.
void Agent::on_supervisor_died(Supervisor& supervisor) {
  supervisors_.drain([](Supervisor& s) {
    if (s.owner != nullptr) static_cast<Execution*>(s.owner)->on_supervisor(s);
  });
  if (supervisor.owner != nullptr) {
    auto& execution = *static_cast<Execution*>(supervisor.owner);
    const std::string id = execution.id();
    if (execution.on_supervisor_lost()) orphaned_.push_back(id);
  }
  supervisors_.bury(supervisor);
}

void Agent::kill_orphans() {
  bool left = false;
  const auto processes = all_processes();
  for (const Process& orphan : processes) {
    if (orphan.parent != ::getpid() || supervisors_.is_supervisor(orphan.pid)) continue;
    left = true;
    for (const Process& process : descendants(processes, orphan.pid))
      signal_process(process, SIGKILL);
    signal_process(orphan, SIGKILL);
  }
  if (left) {
    loop_.in(kOrphanRetry, [this] { on_child_signal(); });
    return;
  }
  for (const std::string& id : std::exchange(orphaned_, {})) {
    auto found = executions_.find(id);
    if (found != executions_.end()) found->second->on_orphans_gone();
  }
}

}  // namespace glovebox::agent
