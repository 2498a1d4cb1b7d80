// SPDX-License-Identifier: Apache-2.0
#include "base/async.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
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

namespace internal {

Awaitable<void> run_blocking(BlockingPool& pool, std::function<void()> work) {
  auto executor = co_await asio::this_coro::executor;
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      [&pool, executor](auto handler, std::function<void()> job) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // The work guard keeps the loop alive until the answer is back.
        auto guard = asio::prefer(executor, asio::execution::outstanding_work.tracked);
        pool.post([shared, guard, job = std::move(job)]() mutable {
          job();
          asio::post(guard, [shared] { std::move (*shared)(); });
        });
      },
      asio::use_awaitable, std::move(work));
}

}  // namespace internal

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
  impl->waiters.push_back(&timer);
  co_await timer.async_wait(kTuple);
  // Still listed: nobody notified, so this was the deadline or a cancellation.
  const auto listed = std::find(impl->waiters.begin(), impl->waiters.end(), &timer);
  if (listed == impl->waiters.end()) co_return true;
  impl->waiters.erase(listed);
  co_return false;
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

int live_tasks() { return live_task_count; }

}  // namespace glovebox
