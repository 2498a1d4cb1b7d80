// SPDX-License-Identifier: Apache-2.0
#include "network/helper.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "http/json.h"
#include "metrics/metrics.h"
#include "sys/command.h"

namespace glovebox::network {
namespace {

using Millis = std::chrono::milliseconds;
constexpr int kControl = 3;
constexpr size_t kMaxLine = 1 << 20;
constexpr size_t kMaxUnsent = 64 << 20;
constexpr Millis kFirstPause{50}, kLastPause{5'000};
constexpr Millis kStable{30'000};  // a process that lived this long failed for a new reason

}  // namespace

std::shared_ptr<Helper> Helper::start(Executor executor, Options options) {
  std::shared_ptr<Helper> helper(new Helper(executor, std::move(options)));
  spawn(executor, "network." + helper->options_.name, helper->supervise());
  return helper;
}

Result<void> Helper::launch() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const int size = 4 << 20;
  (void)::setsockopt(ours.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  auto descriptors = options_.descriptors;
  descriptors.emplace_back(theirs.get(), kControl);
  // On the loop thread, whose end is the daemon's: the process asks to die with its parent thread.
  GB_TRY(pid_, sys::start_program(options_.program, options_.argv, descriptors));
  socket_ = std::move(ours);
  received_.clear();
  unsent_.clear();
  is_ready_ = false;
  ++generation_;
  return {};
}

Awaitable<void> Helper::supervise() {
  const auto self = shared_from_this();
  Millis pause = kFirstPause;
  while (!is_stopping_) {
    const auto began = Clock::now();
    auto launched = launch();
    if (launched) {
      spawn(executor_, "network.set_up", set_up());
      spawn(executor_, "network.ping", ping(generation_));
      co_await converse(pid_);
    }
    if (is_stopping_) break;
    metrics::registry()
        .counter("glovebox_network_helper_restarts_total", "Times a helper process of the network ended and was started again.",
                 {{"helper", options_.name}})
        .add();
    log::error("network.helper_ended", {{"helper", options_.name}, {"message", launched ? "" : launched.error().message},
                                        {"effect", "nothing passes until it runs again"}});
    if (Clock::now() - began > kStable) pause = kFirstPause;
    co_await sleep_for(pause);
    pause = std::min(pause * 2, kLastPause);
  }
  is_over_ = true;
  changed_.notify();
}

// Until the process is gone.
Awaitable<void> Helper::converse(pid_t pid) {
  while (true) {
    const bool readable = co_await wait_readable(socket_.get());
    if (!readable || !read_lines()) break;
  }
  give_up("the process ended");
  ::kill(pid, SIGKILL);
  reap(pid);
}

void Helper::reap(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

void Helper::give_up(std::string_view why) {
  is_ready_ = is_up_ = false;
  for (auto& [number, waiting] : std::exchange(waiting_, {})) {
    waiting->is_answered = true;
    waiting->answer = fail(Code::kUnavailable, "the " + options_.name + " proxy: " + std::string(why));
  }
  changed_.notify();
}

// False at the end of the stream, or when it breaks the protocol.
bool Helper::read_lines() {
  char buffer[64 << 10];
  const ssize_t got = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  received_.append(buffer, static_cast<size_t>(got));
  size_t begin = 0;
  for (size_t end = 0; (end = received_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take_line(std::string_view(received_).substr(begin, end - begin));
  }
  received_.erase(0, begin);
  return received_.size() <= kMaxLine;
}

// The process parses hostile bytes and may have fallen to them: its words are checked like a stranger's.
void Helper::take_line(std::string_view line) {
  const auto value = json::parse_object(line);
  const auto* op = value ? value->as_object().if_contains("op") : nullptr;
  if (op == nullptr || !op->is_string()) {
    log::warn("network.helper_unclear", {{"helper", options_.name}, {"bytes", line.size()}});
    return;
  }
  const auto& object = value->as_object();
  const auto& name = op->get_string();
  if (name == "ready") {
    is_ready_ = true;
    changed_.notify();
  } else if (name == "done" || name == "failed") {
    const auto* seq = object.if_contains("seq");
    const auto found = seq != nullptr && seq->is_int64() ? waiting_.find(seq->get_int64()) : waiting_.end();
    if (found == waiting_.end()) return;
    const auto* message = object.if_contains("message");
    found->second->is_answered = true;
    if (name == "failed") {
      found->second->answer = fail(Code::kInternal, "the " + options_.name + " proxy refused: " +
                                                        (message && message->is_string() ? std::string(message->get_string()) : ""));
    }
    waiting_.erase(found);
    changed_.notify();
  } else {
    options_.on_message(object);
  }
}

Awaitable<void> Helper::set_up() {
  const auto self = shared_from_this();
  const int generation = generation_;
  const Deadline deadline = after(options_.patience);
  while (generation == generation_ && !is_ready_ && Clock::now() < deadline) co_await changed_.wait_until(deadline);
  Result<void> done;
  if (generation != generation_ || is_stopping_) co_return;
  done = is_ready_ ? co_await options_.set_up(*this) : fail(Code::kTimeout, "it did not get ready in time");
  if (generation != generation_ || is_stopping_) co_return;
  if (!done) {
    log::error("network.helper_not_set_up", {{"helper", options_.name}, {"message", done.error().message}});
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    co_return;
  }
  is_up_ = true;
  changed_.notify();
}

// A stopped process holds its sockets and serves nobody.
Awaitable<void> Helper::ping(int generation) {
  const auto self = shared_from_this();
  while (true) {
    co_await sleep_for(options_.ping_every);
    if (generation != generation_ || is_stopping_) co_return;
    if (!is_up_) continue;
    auto answered = co_await call({{"op", "ping"}});
    if (answered || generation != generation_ || is_stopping_) continue;
    log::error("network.helper_stuck", {{"helper", options_.name}, {"message", answered.error().message}});
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    co_return;
  }
}

void Helper::send(const boost::json::object& message) {
  if (!socket_ || unsent_.size() > kMaxUnsent) return;
  unsent_ += json::to_text(message) + "\n";
  if (!is_flushing_) spawn(executor_, "network.send", flush());
}

Awaitable<void> Helper::flush() {
  const auto self = shared_from_this();
  is_flushing_ = true;
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      unsent_.erase(0, static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      co_await sleep_for(Millis(2));  // it reads slowly: its calls time out before long
    } else {
      unsent_.clear();
    }
  }
  is_flushing_ = false;
}

Async<void> Helper::call(boost::json::object message) {
  const auto self = shared_from_this();
  if (!is_ready_) co_return fail(Code::kUnavailable, "the " + options_.name + " proxy is not running");
  const int64_t number = ++sequence_;
  message["seq"] = number;
  auto waiting = std::make_shared<Waiting>();
  waiting_[number] = waiting;
  send(message);
  const Deadline deadline = after(options_.patience);
  while (!waiting->is_answered && Clock::now() < deadline) co_await changed_.wait_until(deadline);
  waiting_.erase(number);
  if (!waiting->is_answered) co_return fail(Code::kTimeout, "the " + options_.name + " proxy does not answer");
  co_return waiting->answer;
}

Awaitable<bool> Helper::wait_up(Deadline deadline) {
  const auto self = shared_from_this();
  while (!is_up_ && !is_stopping_ && Clock::now() < deadline) co_await changed_.wait_until(deadline);
  co_return is_up_;
}

Awaitable<void> Helper::stop() {
  const auto self = shared_from_this();
  is_stopping_ = true;
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.notify();
  const Deadline deadline = after(options_.patience);
  while (!is_over_ && Clock::now() < deadline) co_await changed_.wait_until(deadline);
}

}  // namespace glovebox::network
