// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/unique_fd.h"

namespace glovebox::cli {
namespace asio = boost::asio;
namespace {

// Without those that whoever started us had us ignore (nohup; a shell without job control its background commands): blocked, they
// would come all the same.
sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
    struct sigaction action {};
    const bool is_ignored = ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!is_ignored || signal == SIGWINCH) sigaddset(&set, signal);
  }
  return set;
}

// Blocks the signals for its lifetime; made before the pool's threads, which inherit the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    const sigset_t set = handled_signals();
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { restore(); }
  void restore() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

Awaitable<void> watch_signals(int fd, Loop& loop) {
  while (co_await wait_readable(fd, Deadline::max())) {
    signalfd_siginfo info{};
    if (::read(fd, &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGWINCH) {
      ++loop.pending_signals;
      loop.last_signal = signal;
    }
    if (loop.on_signal) {
      loop.on_signal(signal);
    } else if (signal != SIGWINCH) {
      loop.stop(128 + signal);
    }
  }
}

// Through an epoll of its own: waiting on `fd` itself would make the open file non-blocking, which
// the shell that lent us its terminal shares.
Awaitable<bool> wait_for_input(int fd) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  if (!epoll || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) co_return false;
  co_return co_await wait_readable(epoll.get(), Deadline::max());
}

bool is_ready(int fd, short events) {
  pollfd one{fd, events, 0};
  return ::poll(&one, 1, 0) > 0;
}

}  // namespace

Result<int> run_loop(const std::function<Async<int>(Loop&)>& main) {
  BlockedSignals blocked;
  const sigset_t set = handled_signals();
  const UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return fail_errno("signalfd");
  std::optional<Result<int>> outcome;
  Loop loop;
  asio::cancellation_signal cancel;
  asio::io_context context(1);
  BlockingPool pool(4);  // joined before the context and its coroutines go
  loop.executor = context.get_executor();
  loop.pool = &pool;
  loop.stop = [&](int exit_code) {
    if (outcome) ::_exit(exit_code);  // asked before, and still here
    outcome = exit_code;
    cancel.emit(asio::cancellation_type::terminal);
  };
  auto finished = [&](const std::exception_ptr& failure, Result<int> result) {
    if (failure && !outcome)
      std::rethrow_exception(failure);  // after stop() it is how the coroutine was unwound
    if (!outcome) outcome = std::move(result);
    context.stop();
  };
  asio::co_spawn(context, main(loop), asio::bind_cancellation_slot(cancel.slot(), finished));
  spawn(loop.executor, "signals", watch_signals(signals.get(), loop));
  context.run();
  // What still runs on the pool is output that nobody reads; Ctrl-C must be able to end that.
  blocked.restore();
  if (!outcome) return fail(Code::kInternal, "the command's coroutine was lost");
  return std::move(*outcome);
}

Awaitable<std::string> read_input(int fd) {
  // Regular files and /dev/null cannot be waited for, and need not be: poll(2) calls them readable.
  if (!is_ready(fd, POLLIN) && !co_await wait_for_input(fd)) co_return std::string();
  std::string data(64 << 10, '\0');
  ssize_t got = 0;
  do {
    got = ::read(fd, data.data(), data.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) co_return co_await read_input(fd);
  data.resize(got > 0 ? static_cast<size_t>(got) : 0);
  co_return data;
}

Result<void> write_fully(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t wrote = ::write(fd, data.data(), data.size());
    if (wrote > 0) {
      data.remove_prefix(static_cast<size_t>(wrote));
    } else if (wrote < 0 && errno == EAGAIN) {  // somebody made the shared description non-blocking
      pollfd one{fd, POLLOUT, 0};
      ::poll(&one, 1, -1);
    } else if (wrote < 0 && errno == EPIPE) {
      return fail(Code::kCancelled, "nobody reads the output any more");
    } else if (wrote < 0 && errno != EINTR) {
      return fail_errno("writing the output");
    }
  }
  return {};
}

struct OutputQueue::State {
  std::deque<std::pair<int, std::string>> waiting;
  size_t bytes = 0;
  std::optional<Error> failure;
  Notifier pushed, written;
};

OutputQueue::OutputQueue(Loop& loop) : state_(std::make_shared<State>()) {
  spawn(loop.executor, "output", write_all(state_, *loop.pool));
}

Awaitable<void> OutputQueue::write_all(std::shared_ptr<State> state, BlockingPool& pool) {
  while (true) {
    while (state->waiting.empty()) co_await state->pushed.wait();
    const auto* next =
        &state->waiting.front();  // pointers into a deque stay valid while others push
    auto wrote =
        co_await run_blocking(pool, [next] { return write_fully(next->first, next->second); });
    if (!wrote) state->failure = wrote.error();
    state->bytes -= state->waiting.front().second.size();
    state->waiting.pop_front();
    state->written.notify();
  }
}

Async<void> OutputQueue::push(int fd, std::string data) {
  auto state = state_;
  while (state->bytes >= kMaxQueued && !state->failure) co_await state->written.wait();
  if (state->failure) co_return fail(*state->failure);
  state->bytes += data.size();
  state->waiting.emplace_back(fd, std::move(data));
  state->pushed.notify();
  co_return Result<void>();
}

Async<void> OutputQueue::flush() {
  auto state = state_;
  while (!state->waiting.empty() && !state->failure) co_await state->written.wait();
  if (state->failure) co_return fail(*state->failure);
  co_return Result<void>();
}

}  // namespace glovebox::cli
