// SPDX-License-Identifier: Apache-2.0
#include "base/async.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

namespace glovebox {
namespace {

TEST(RunBlocking, ReturnsOnTheLoopWithTheResult) {
  boost::asio::io_context loop;
  BlockingPool pool(2);
  int got = 0;
  auto task = [](BlockingPool& p, int& out) -> Awaitable<void> {
    const auto loop_thread = pthread_self();
    auto other = co_await run_blocking(p, [loop_thread] { return Result<int>(pthread_self() == loop_thread ? 0 : 7); });
    EXPECT_EQ(pthread_self(), loop_thread);
    out = other.value();
  };
  spawn(loop.get_executor(), "test", task(pool, got));
  loop.run();
  EXPECT_EQ(got, 7);
  EXPECT_EQ(live_tasks(), 0);
}

TEST(Notifier, WakesEveryWaiterAndTimesOutOtherwise) {
  boost::asio::io_context loop;
  Notifier notifier;
  int woken = 0, late = 0;
  auto waiter = [](Notifier& n, int& w) -> Awaitable<void> { w += co_await n.wait() ? 1 : 0; };
  auto caller = [](Notifier& n, int& l) -> Awaitable<void> {
    co_await sleep_for(std::chrono::milliseconds(1));
    n.notify();
    l += co_await n.wait_until(after(std::chrono::milliseconds(1))) ? 0 : 1;
  };
  spawn(loop.get_executor(), "a", waiter(notifier, woken));
  spawn(loop.get_executor(), "b", waiter(notifier, woken));
  spawn(loop.get_executor(), "c", caller(notifier, late));
  loop.run();
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(late, 1);
}

}  // namespace
}  // namespace glovebox
