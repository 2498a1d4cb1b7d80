// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace glovebox {

// The daemon has one loop thread. Every coroutine runs on it, so objects that only coroutines touch need no lock; what
// blocks (SQLite, mount, fsync, starting an engine) goes to the blocking pool with run_blocking() and comes back.
template <class T>
using Async = boost::asio::awaitable<Result<T>>;
template <class T>
using Awaitable = boost::asio::awaitable<T>;
using Executor = boost::asio::any_io_executor;

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline Deadline after(std::chrono::milliseconds d) { return Clock::now() + d; }

// Waits until `when`; true if it was reached, false if the waiting coroutine was cancelled.
Awaitable<bool> sleep_until(Deadline when);
inline Awaitable<bool> sleep_for(std::chrono::milliseconds d) { return sleep_until(after(d)); }

// A set of threads for work that blocks. One per process, made by main, outlives every coroutine that uses it.
class BlockingPool {
 public:
  explicit BlockingPool(int threads);
  ~BlockingPool();  // waits for running work
  void post(std::function<void()> work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Suspends the caller until `start`'s argument is called, once, from any thread; resumes it on its own executor.
Awaitable<void> resume_from_thread(std::function<void(std::function<void()> resume)> start);

// Runs `work` on the pool and resumes the caller on its own executor with what it returned. `work` may use references to
// things that outlive the await. It always runs to its end, also when the waiting coroutine is cancelled.
template <class Work>
auto run_blocking(BlockingPool& pool, Work work) -> Awaitable<decltype(work())> {
  using R = decltype(work());
  auto slot = std::make_shared<std::pair<Work, std::unique_ptr<R>>>(std::move(work), nullptr);
  std::function<void(std::function<void()>)> start = [&pool, slot](std::function<void()> resume) {
    pool.post([slot, resume = std::move(resume)] {
      slot->second = std::make_unique<R>(slot->first());
      resume();
    });
  };
  co_await resume_from_thread(std::move(start));
  co_return std::move(*slot->second);
}

// Wakes coroutines: wait() returns after a notify() that follows it, or at the deadline. Loop thread only.
class Notifier {
 public:
  Notifier();
  ~Notifier();
  void notify();
  // True when notified, false at the deadline or when cancelled.
  Awaitable<bool> wait_until(Deadline deadline);
  Awaitable<bool> wait();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Waits until `fd` is readable (a pidfd: its process has ended): true; or false at the deadline or when cancelled.
// The caller keeps ownership of `fd`, which stays open at least as long as the wait.
Awaitable<bool> wait_readable(int fd, Deadline deadline = Deadline::max());

Awaitable<Executor> this_executor();

// Starts a coroutine on `executor` that nobody awaits. An exception that escapes is logged under `name`.
void spawn(const Executor& executor, std::string_view name, Awaitable<void> task);

// How many spawned tasks are alive; main waits for zero at shutdown.
int live_tasks();

}  // namespace glovebox
