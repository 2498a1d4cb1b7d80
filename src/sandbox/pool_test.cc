// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Type;
using channel::testing::eventually;
using channel::testing::Peer;
using testing::json_text;
using testing::World;

Config with_pool(size_t count) {
  Config config;
  config.pool = {{"base", runtime::Tier::kContainer, count}};
  return config;
}

size_t ready(World& w) { return w.manager().pool().at(0).ready; }
Awaitable<bool> is_full(World& w, size_t count) {
  co_return co_await eventually([&w, count] { return ready(w) == count; });
}

TEST(Pool, AClaimTellsTheAgentTheOwnersSettingsAndNoOthers) {
  World w(with_pool(2));
  std::map<std::string, std::vector<std::string>> hellos;  // by sandbox
  w.intercept = [&](Peer&, channel::Frame& frame) -> Awaitable<bool> {
    if (frame.type == Type::kHello) hellos[json_text(frame.payload, "sandbox")].push_back(frame.payload);
    co_return false;
  };
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 2));
    CreateSpec spec;
    spec.env["WHOSE"] = "mine";
    spec.user = "someone";
    spec.metadata["a"] = "b";
    const auto box = co_await w.create(spec);
    EXPECT_EQ(box->started_from, "pool");
    EXPECT_EQ(box->state, State::kReady);
    EXPECT_EQ(box->metadata.at("a"), "b");
    const auto& of_it = hellos.at(box->id);
    EXPECT_EQ(of_it.size(), 2u);
    EXPECT_EQ(json_text(of_it[0], "pooled"), "true");
    EXPECT_EQ(of_it[0].find("mine"), std::string::npos);
    EXPECT_EQ(json_text(of_it[1], "pooled"), "");
    EXPECT_EQ(json_text(of_it[1], "WHOSE"), "mine");
    EXPECT_EQ(json_text(of_it[1], "default_user"), "someone");
    EXPECT_NE(json_text(of_it[0], "seed"), json_text(of_it[1], "seed"));
    auto execution = co_await w.exec(box->id, "exit 3");
    EXPECT_TRUE(co_await execution->wait(after(5s)));
    EXPECT_TRUE(co_await is_full(w, 2)) << "it is filled up again";
    EXPECT_EQ(w.manager().pool().at(0).claimed, 1u);
  });
}

TEST(Pool, WhatDiffersFromItIsStartedCold) {
  World w(with_pool(1));
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 1));
    CreateSpec fresh, larger;
    fresh.fresh = true;
    larger.memory_bytes = 2ull << 30;
    for (const auto& spec : {fresh, larger}) {
      const auto box = co_await w.create(spec);
      EXPECT_EQ(box->started_from, "cold");
      EXPECT_EQ(box->limits.memory_bytes, spec.memory_bytes.value_or(w.config().default_limits.memory_bytes));
    }
    EXPECT_EQ(w.manager().pool().at(0).misses, 0u);
    EXPECT_EQ((co_await w.create())->started_from, "pool");
    EXPECT_EQ((co_await w.create())->started_from, "cold");
    EXPECT_EQ(w.manager().pool().at(0).misses, 1u);
  });
}

TEST(Pool, NobodySeesIt) {
  Config config = with_pool(3);
  config.max_sandboxes = 2;
  World w(config);
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 3));
    const auto ids = w.runtime().ids();
    EXPECT_TRUE(w.manager().list(w.caller, {})->items.empty());
    Caller nobody;
    EXPECT_TRUE(w.manager().list(nobody, {})->items.empty());
    EXPECT_EQ(ids.size(), 3u);
    for (const std::string& id : ids) {
      for (const Caller& caller : {w.caller, nobody}) EXPECT_EQ(w.manager().get(caller, id).error().code, Code::kSandboxNotFound);
      EXPECT_EQ(w.manager().get_unchecked(id).error().code, Code::kSandboxNotFound);
    }
    EXPECT_TRUE((co_await w.create()).has_value());
    EXPECT_TRUE((co_await w.create()).has_value());
    EXPECT_EQ((co_await w.create()).error().code, Code::kCapacity);
  });
}

TEST(Pool, StandsStillUntilItIsClaimed) {
  World w(with_pool(2));
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 2));
    for (const std::string& id : w.runtime().ids()) EXPECT_TRUE(w.runtime().box(id)->frozen);
    const auto box = co_await w.create();
    EXPECT_FALSE(w.runtime().box(box->id)->frozen);
  });
}

TEST(Pool, OfADeadDaemonIsRemovedAndMadeAnew) {
  World w(with_pool(2));
  w.restart();
  std::vector<std::string> before;
  std::string mine;
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 2));
    mine = (co_await w.create())->id;
    EXPECT_TRUE(co_await is_full(w, 2));
    before = w.runtime().ids();
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 2));
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().ids().size() == 3; }));
    EXPECT_EQ(w.info(mine).state, State::kReady);
    for (const std::string& id : before) {
      if (id != mine) EXPECT_EQ(w.runtime().box(id), nullptr);
    }
    co_await w.manager().close_pool();
    EXPECT_EQ(w.runtime().ids(), std::vector<std::string>{mine});
  });
}

TEST(Pool, OneThatDiedOrIsDeafIsReplacedAndTheCallerSeesNothing) {
  Config config = with_pool(1);
  config.patience.adopt = 100ms;
  World w(config);
  bool is_deaf = false;
  w.intercept = [&](Peer&, channel::Frame& frame) -> Awaitable<bool> {
    co_return frame.type == Type::kHello && is_deaf && json_text(frame.payload, "pooled").empty() && std::exchange(is_deaf, false);
  };
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 1));
    const std::string first = w.runtime().ids().at(0);
    w.runtime().kill(first);
    EXPECT_TRUE(co_await eventually([&] { return ready(w) == 0; }));
    EXPECT_EQ((co_await w.create())->started_from, "cold");
    EXPECT_TRUE(co_await is_full(w, 1));
    is_deaf = true;
    const auto box = co_await w.create();
    EXPECT_EQ(box->started_from, "cold");
    EXPECT_EQ(w.manager().list(w.caller, {})->items.size(), 2u);
    EXPECT_TRUE(co_await is_full(w, 1));
    EXPECT_EQ((co_await w.create())->started_from, "pool");
  });
}

TEST(Pool, ManyClaimsAtOnceAreNotMixedUp) {
  World w(with_pool(20));
  std::map<std::string, std::string> told;
  w.intercept = [&](Peer&, channel::Frame& frame) -> Awaitable<bool> {
    if (frame.type == Type::kHello) told[json_text(frame.payload, "sandbox")] = json_text(frame.payload, "N");
    co_return false;
  };
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 20));
    std::map<std::string, std::string> made;
    auto create = [](World& world, int n, std::map<std::string, std::string>* out) -> Awaitable<void> {
      CreateSpec spec;
      spec.env["N"] = std::to_string(n);
      spec.metadata["n"] = std::to_string(n);
      const auto box = co_await world.create(spec);
      EXPECT_EQ(box->metadata.at("n"), std::to_string(n));
      (*out)[box->id] = std::to_string(n);
    };
    for (int n = 0; n < 30; ++n) spawn(w.executor(), "create", create(w, n, &made));
    EXPECT_TRUE(co_await eventually([&] { return made.size() == 30; }));
    for (const auto& [id, n] : made) EXPECT_EQ(told[id], n) << id;
    EXPECT_EQ(w.manager().pool().at(0).claimed, 20u);
  });
}

}  // namespace
}  // namespace glovebox::sandbox
