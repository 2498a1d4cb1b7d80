// SPDX-License-Identifier: Apache-2.0
#include "base/async.h"

#include <fcntl.h>
#include <poll.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "base/log.h"

namespace glovebox {
namespace asio = boost::asio;
namespace {
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
int live_task_count = 0;  // loop thread only
}  // namespace

Awaitable<bool> sleep_until(Deadline when) {
  asio::steady_timer timer(co_await asio::this_coro::executor, when);
  auto [ec] = co_await timer.async_wait(kTuple);
  co_return !ec;
}

struct BlockingPool::Impl {
  explicit Impl(int threads) : pool(static_cast<size_t>(threads)) {}
  asio::thread_pool pool;
};

BlockingPool::BlockingPool(int threads) : impl_(std::make_unique<Impl>(threads)) {}
BlockingPool::~BlockingPool() { impl_->pool.join(); }
void BlockingPool::post(std::function<void()> work) { asio::post(impl_->pool, std::move(work)); }

Awaitable<void> resume_from_thread(std::function<void(std::function<void()>)> start) {
  auto executor = co_await asio::this_coro::executor;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [executor](auto handler, std::function<void(std::function<void()>)> begin) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // Keeps the loop alive until the answer is back.
        auto tracked = asio::prefer(executor, asio::execution::outstanding_work.tracked);
        begin([shared, tracked] { asio::post(tracked, [shared] { std::move (*shared)(); }); });
      },
      asio::use_awaitable, std::move(start));
}

Awaitable<bool> wait_readable(int fd, Deadline deadline) {
  auto executor = co_await asio::this_coro::executor;
  // A duplicate, so that the descriptor's registration ends with this wait and not with the caller's descriptor. Shared with
  // the timer's handler, which may still be queued when this coroutine goes on.
  struct Wait {
    asio::posix::stream_descriptor watched;
    bool timed_out = false;
  };
  auto wait = std::make_shared<Wait>(Wait{{executor, ::fcntl(fd, F_DUPFD_CLOEXEC, 3)}});
  asio::steady_timer timer(executor, deadline);
  if (deadline != Deadline::max()) {
    timer.async_wait([wait](const boost::system::error_code& ec) {
      if (ec) return;
      wait->timed_out = true;
      boost::system::error_code ignored;
      wait->watched.cancel(ignored);
    });
  }
  while (true) {
    auto [ec] = co_await wait->watched.async_wait(asio::posix::stream_descriptor::wait_read, kTuple);
    // The reactor may say so of a descriptor that had an event pending when it was closed, and whose bookkeeping is ours now
    // (async_test.cc). Believing it would end a living sandbox, so look.
    pollfd state{wait->watched.native_handle(), POLLIN, 0};
    const bool readable = !ec && ::poll(&state, 1, 0) > 0 && (state.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    if (!ec && !readable && !wait->timed_out) continue;
    timer.cancel();
    co_return readable && !wait->timed_out;
  }
}

struct Notifier::Impl {
  // A waiter is a timer; notify() cancels all of them.
  std::vector<asio::steady_timer*> waiters;
};

Notifier::Notifier() : impl_(std::make_shared<Impl>()) {}
Notifier::~Notifier() { notify(); }

void Notifier::notify() {
  auto waiters = std::move(impl_->waiters);
  impl_->waiters.clear();
  for (auto* timer : waiters) timer->cancel();
}

Awaitable<bool> Notifier::wait_until(Deadline deadline) {
  auto impl = impl_;
  asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
  // Leaves the list however the wait ends, also when the coroutine is destroyed.
  struct Listed {
    std::vector<asio::steady_timer*>& waiters;
    asio::steady_timer* timer;
    bool remove() {
      const auto it = std::find(waiters.begin(), waiters.end(), timer);
      if (it == waiters.end()) return false;
      waiters.erase(it);
      return true;
    }
    ~Listed() { remove(); }
  } listed{impl->waiters, &timer};
  impl->waiters.push_back(&timer);
  co_await timer.async_wait(kTuple);
  // Still listed: nobody notified, so this was the deadline or a cancellation.
  co_return !listed.remove();
}

Awaitable<bool> Notifier::wait() { return wait_until(Deadline::max()); }

void spawn(const Executor& executor, std::string_view name, Awaitable<void> task) {
  ++live_task_count;
  asio::co_spawn(executor, std::move(task), [name = std::string(name)](const std::exception_ptr& failure) {
    --live_task_count;
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      log::error("task.failed", {{"task", name}, {"what", e.what()}});
    }
  });
}

Awaitable<Executor> this_executor() { co_return co_await asio::this_coro::executor; }

int live_tasks() { return live_task_count; }

}  // namespace glovebox
