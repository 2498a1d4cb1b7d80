// SPDX-License-Identifier: Apache-2.0
#include "network/helper.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/test_loop.h"

namespace glovebox::network {
namespace {

using namespace std::chrono_literals;

Helper::Options speaking() {
  Helper::Options options;
  options.name = "test";
  options.program = GLOVEBOX_NETWORK_TEST_PROGRAM;
  options.argv = {"glovebox", "speak"};
  options.ping_every = 100ms;
  options.patience = 60s;
  options.on_message = [](const boost::json::object&) {};
  options.set_up = [](Helper&) -> Async<void> { co_return Result<void>(); };
  return options;
}

Awaitable<bool> wait_for_another(Helper& helper, pid_t old) {
  const Deadline deadline = after(60s);
  while (Clock::now() < deadline && (!helper.is_up() || helper.pid() == old)) co_await sleep_for(10ms);
  co_return helper.is_up() && helper.pid() != old;
}

// Runs `work` with a helper that is up.
void with_helper(Helper::Options options, std::function<Async<void>(Helper&)> work) {
  TestLoop loop;
  const auto task = [](Helper::Options o, std::function<Async<void>(Helper&)> w) -> Async<void> {
    auto helper = Helper::start(co_await this_executor(), std::move(o));
    const bool is_up = co_await helper->wait_up(after(60s));
    Result<void> done = is_up ? co_await w(*helper) : fail(Code::kTimeout, "the helper did not come up");
    co_await helper->stop();
    co_return done;
  };
  const auto done = loop.run(task(std::move(options), std::move(work)));
  EXPECT_TRUE(done) << done.error().message;
}

TEST(Helper, AnswersCallsAndSaysWhatItSees) {
  int events = 0;
  auto options = speaking();
  options.on_message = [&](const boost::json::object& message) { events += message.at("op") == "event"; };
  with_helper(std::move(options), [&](Helper& helper) -> Async<void> {
    for (int i = 0; i < 3; ++i) GB_CO_TRYV(co_await helper.call({{"op", "link"}}));
    const auto refused = co_await helper.call({{"op", "refuse"}});
    EXPECT_FALSE(refused);
    if (!refused) EXPECT_NE(refused.error().message.find("no"), std::string::npos);
    co_return Result<void>();
  });
  EXPECT_GE(events, 3);
}

TEST(Helper, IsStartedAgainAndSetUpEachTime) {
  int set_up = 0;
  auto options = speaking();
  options.set_up = [&](Helper& helper) -> Async<void> {
    ++set_up;
    co_return co_await helper.call({{"op", "config"}});
  };
  with_helper(std::move(options), [&](Helper& helper) -> Async<void> {
    const pid_t first = helper.pid();
    ::kill(first, SIGKILL);
    EXPECT_TRUE(co_await wait_for_another(helper, first));
    const pid_t second = helper.pid();
    const auto lost = co_await helper.call({{"op", "die"}});
    EXPECT_FALSE(lost);
    if (!lost) EXPECT_EQ(lost.error().code, Code::kUnavailable);
    EXPECT_TRUE(co_await wait_for_another(helper, second));
    co_return co_await helper.call({{"op", "link"}});
  });
  EXPECT_EQ(set_up, 3);
}

TEST(Helper, ASilentOrStoppedProcessIsReplaced) {
  auto options = speaking();
  options.patience = 500ms;
  with_helper(std::move(options), [&](Helper& helper) -> Async<void> {
    const pid_t first = helper.pid();
    helper.send({{"op", "hang"}});
    EXPECT_TRUE(co_await wait_for_another(helper, first));
    const pid_t second = helper.pid();
    ::kill(second, SIGSTOP);
    EXPECT_TRUE(co_await wait_for_another(helper, second));
    co_return Result<void>();
  });
}

TEST(Helper, AFailedSetUpIsTriedAgain) {
  int tries = 0;
  auto options = speaking();
  options.set_up = [&](Helper&) -> Async<void> {
    if (++tries < 3) co_return fail(Code::kIo, "not yet");
    co_return Result<void>();
  };
  with_helper(std::move(options), [&](Helper&) -> Async<void> { co_return Result<void>(); });
  EXPECT_EQ(tries, 3);
}

}  // namespace
}  // namespace glovebox::network
