// SPDX-License-Identifier: Apache-2.0
#include "base/async.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>

#include "base/unique_fd.h"

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

struct Pipe {
  Pipe() {
    int ends[2];
    GB_ASSERT(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  void fill() const { GB_ASSERT(::write(write.get(), "x", 1) == 1); }
  UniqueFd read, write;
};

// The reactor delivers a batch of events one by one. A handler early in the batch may close a descriptor whose event comes later
// and open another one, which is then given the closed one's bookkeeping, its undelivered event included: the reactor says that
// the new descriptor is readable. That is no news to a read, which finds nothing; a wait has to look for itself.
struct StaleEvent {
  using Descriptor = boost::asio::posix::stream_descriptor;
  explicit StaleEvent(boost::asio::io_context& loop) : first(loop, ::dup(one.read.get())), closed(std::in_place, loop, ::dup(two.read.get())) {}

  Awaitable<void> closes_the_other() {
    constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);
    (void)co_await first.async_wait(Descriptor::wait_read, kTuple);
    if (!closed) co_return;
    closed.reset();
    began = true;
    woken_for_data = co_await wait_readable(quiet.read.get(), after(std::chrono::milliseconds(50)));
  }
  Awaitable<void> is_closed() {
    constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);
    (void)co_await closed->async_wait(Descriptor::wait_read, kTuple);
  }

  Pipe one, two, quiet;
  Descriptor first;
  std::optional<Descriptor> closed;
  bool began = false, woken_for_data = false;
};

TEST(WaitReadable, DoesNotBelieveAnEventOfADescriptorThatWasClosed) {
  boost::asio::io_context loop;
  StaleEvent stale(loop);
  spawn(loop.get_executor(), "closes", stale.closes_the_other());
  spawn(loop.get_executor(), "closed", stale.is_closed());
  loop.poll();  // both wait
  stale.one.fill();
  stale.two.fill();
  loop.run();
  EXPECT_TRUE(stale.began);
  EXPECT_FALSE(stale.woken_for_data);
  stale.quiet.fill();
  bool seen = false;
  auto wait = [](int fd, bool& out) -> Awaitable<void> { out = co_await wait_readable(fd); };
  loop.restart();
  spawn(loop.get_executor(), "wait", wait(stale.quiet.read.get(), seen));
  loop.run();
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace glovebox
