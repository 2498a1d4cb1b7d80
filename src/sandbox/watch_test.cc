// SPDX-License-Identifier: Apache-2.0
#include "sandbox/watch.h"

#include <gtest/gtest.h>

#include "sandbox/snapshots.h"
#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Frame;
using channel::Type;
using channel::testing::eventually;
using channel::testing::Peer;
using testing::World;

// An agent whose watches send `data` when they begin.
testing::FakeAgent::Intercept watching(std::string data) {
  return [data](Peer& peer, Frame& frame) -> Awaitable<bool> {
    const bool is_watch =
        frame.type == Type::kRequest && testing::json_text(frame.payload, "op") == "watch";
    if (!is_watch) co_return frame.type == Type::kCancel;
    co_await peer.send(frame.channel, Type::kResponse, R"({"ok":true})");
    if (!data.empty()) co_await peer.send(frame.channel, Type::kData, data);
    co_return true;
  };
}

using Watching = Result<std::unique_ptr<FileWatch>>;
Awaitable<Watching> watch(World& w, std::string id) {
  co_return co_await w.manager().watch_files(w.caller, id, "", "/tmp", false);
}

Awaitable<Error> end_of(FileWatch& watch) {
  for (int i = 0; i < 100; ++i) {
    auto events = co_await watch.next(after(60s));
    if (!events) co_return events.error();
  }
  co_return Error{Code::kInternal, "it did not end", {}};
}

TEST(Watch, TellsWhatTheAgentSaysInLines) {
  World w;
  w.intercept = watching(
      "{\"type\":\"create\",\"path\":\"a/"
      "b\"}\n{\"type\":\"overflow\",\"path\":\"\"}\n{\"type\":\"wri");
  w.run([&]() -> Awaitable<void> {
    const auto id = (co_await w.create())->id;
    auto watched = co_await watch(w, id);
    const auto events = co_await (*watched)->next(after(60s));
    EXPECT_EQ(events->size(), 2u);
    EXPECT_EQ(events->at(0).path, "a/b");
    EXPECT_EQ(events->at(1).type, "overflow");
    EXPECT_TRUE((co_await (*watched)->next(after(20ms)))->empty())
        << "nothing comes of half a line, and a deadline is no end";
  });
}

TEST(Watch, ItsSandboxesEndIsItsEnd) {
  World w;
  w.intercept = watching("");
  w.run([&]() -> Awaitable<void> {
    const auto id = (co_await w.create())->id;
    auto watched = co_await watch(w, id);
    auto kill = [](World& world, std::string box) -> Awaitable<void> {
      (void)co_await world.manager().kill(world.caller, box);
    };
    spawn(w.executor(), "kill", kill(w, id));
    for (int i = 0; i < 2; ++i) {
      const Error error = co_await end_of(**watched);
      EXPECT_EQ(error.code, Code::kSandboxEnded);
      EXPECT_EQ(error.details.at("reason"), "killed");
    }
  });
}

TEST(Watch, HibernationEndsItAndTheSandboxIsWatchedAgain) {
  World w({}, runtime::Tier::kGvisor);
  w.intercept = watching("");
  w.run([&]() -> Awaitable<void> {
    const auto id = (co_await w.create())->id;
    auto watched = co_await watch(w, id);
    EXPECT_TRUE((co_await w.manager().snapshots().hibernate(w.caller, id, {})).has_value());
    EXPECT_EQ((co_await end_of(**watched)).code, Code::kSandboxNotReady);
    auto again = co_await watch(w, id);
    EXPECT_TRUE(again.has_value());
    EXPECT_EQ(w.info(id).state, State::kReady);
  });
}

TEST(Watch, TheDaemonsEndIsToldAndNoPauseIs) {
  World w;
  w.intercept = watching("");
  w.run([&]() -> Awaitable<void> {
    const auto id = (co_await w.create())->id;
    auto watched = co_await watch(w, id);
    EXPECT_TRUE((co_await w.manager().pause(w.caller, id)).has_value())
        << "it holds a sandbox in no state";
    EXPECT_TRUE((co_await (*watched)->next(after(20ms)))->empty());
    w.manager().cut_watches();
    EXPECT_EQ((co_await end_of(**watched)).code, Code::kUnavailable);
  });
}

TEST(Watch, SixtyFourOfASandboxWhateverItsAgentTakes) {
  World w;
  w.intercept = watching("");
  w.run([&]() -> Awaitable<void> {
    const auto id = (co_await w.create())->id;
    std::vector<std::unique_ptr<FileWatch>> open;
    while (open.size() < 64) open.push_back((co_await watch(w, id)).value());
    EXPECT_EQ((co_await watch(w, id)).error().code, Code::kCapacity);
    open.pop_back();
    EXPECT_TRUE((co_await watch(w, id)).has_value());
  });
}

// What no honest agent says ends the watch, for good, and costs at most what is under way.
class WatchBreach : public ::testing::TestWithParam<std::string> {};

TEST_P(WatchBreach, EndsTheWatch) {
  World w;
  w.intercept = watching(GetParam());
  w.run([&]() -> Awaitable<void> {
    const auto id = (co_await w.create())->id;
    auto watched = co_await watch(w, id);
    for (int i = 0; i < 2; ++i) EXPECT_EQ((co_await end_of(**watched)).code, Code::kAgentProtocol);
  });
}
INSTANTIATE_TEST_SUITE_P(
    Watch, WatchBreach,
    ::testing::Values(
        "what\n", "{}\n", "[]\n", "{\"type\":\"door\",\"path\":\"a\"}\n",
        "{\"type\":\"create\",\"path\":7}\n", "{\"type\":\"create\",\"path\":\"../etc\"}\n",
        "{\"type\":\"create\",\"path\":\"/etc\"}\n", "{\"type\":\"create\",\"path\":\"a//b\"}\n",
        "{\"type\":\"create\",\"path\":{\"b64\":\"AA==\"}}\n", std::string(200 << 10, ' '),
        "{\"type\":\"create\",\"path\":\"" + std::string(10'000, 'a') + "\"}\n"));

}  // namespace
}  // namespace glovebox::sandbox
