// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Type;
using channel::testing::eventually;
using channel::testing::Peer;
using testing::FakeAgent;
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
    EXPECT_TRUE(co_await execution->wait(after(60s)));
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
    std::string from = "cold";
    for (int i = 0; i < 5 && from == "cold"; ++i) {  // one that the machine held up for 100 ms is deaf, too
      EXPECT_TRUE(co_await is_full(w, 1));
      from = (co_await w.create())->started_from;
    }
    EXPECT_EQ(from, "pool");
  });
}

// ---- Warm ones ----

size_t warm(World& w) { return w.manager().pool().at(0).warm; }

Config with_warm_pool(size_t count) {
  Config config = with_pool(count);
  config.pool[0].warm = {"python"};
  return config;
}

// Starts a program that serves, as the code interpreter does.
Async<void> start_server(Inside& inside, std::vector<std::string> wanted) {
  EXPECT_EQ(wanted, std::vector<std::string>{"python"});
  ExecSpec spec;
  spec.command = "serve ready";
  spec.name = "server";
  spec.background = spec.detached = true;
  GB_CO_TRY(const auto started, co_await inside.execute(std::move(spec)));
  EXPECT_TRUE(co_await started->wait_output(0, after(60s)));
  co_return Result<void>();
}
Async<void> refuse(Inside&, std::vector<std::string>) { co_return fail(Code::kUnsupported, "it has none"); }
Async<void> hang(Inside& inside, std::vector<std::string>) {
  ExecSpec spec;
  spec.command = "hang";
  GB_CO_TRY(const auto started, co_await inside.execute(std::move(spec)));
  (void)co_await started->wait(Deadline::max());
  co_return fail(Code::kSandboxIo, "it has ended");
}

TEST(WarmPool, WhatRunsInOneIsItsOwnersFromTheClaimOn) {
  World w(with_warm_pool(1));
  w.restart();
  w.manager().set_warmer(start_server);
  std::string id;
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return warm(w) == 1; }));
    EXPECT_TRUE(w.runtime().box(w.runtime().ids().at(0))->frozen);
    const auto box = co_await w.create();
    id = box->id;
    EXPECT_EQ(box->started_from, "pool");
    const auto executions = w.manager().executions(w.caller, id, {}, 10, "")->items;
    EXPECT_EQ(executions.size(), 1u);
    EXPECT_EQ(executions.at(0).name, "server");
    EXPECT_FALSE(executions.at(0).outcome);
    EXPECT_GE(executions.at(0).started_at, box->created_at);
    EXPECT_EQ(box->running_executions, 0) << "it is no work of the owner's";
    const auto server = co_await w.manager().execution(w.caller, id, executions.at(0).id);
    EXPECT_TRUE((co_await (*server)->kill()).has_value()) << "it can be spoken to";
    EXPECT_EQ((*server)->info().outcome->type, "killed_by_caller");
    co_await w.manager().close_pool();
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_EQ(w.manager().executions(w.caller, id, {}, 10, "")->items.at(0).name, "server");
    co_return;
  });
}

TEST(WarmPool, OneIsForItsTemplatesUserOnly) {
  World w(with_warm_pool(1));
  w.restart();
  w.manager().set_warmer(start_server);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return warm(w) == 1; }));
    CreateSpec spec;
    spec.user = "someone";
    EXPECT_EQ((co_await w.create(spec))->started_from, "cold");
    EXPECT_EQ(w.manager().pool().at(0).misses, 0u);
    EXPECT_EQ((co_await w.create())->started_from, "pool");
  });
}

TEST(WarmPool, WhatCannotBeWarmIsKeptAsItStarts) {
  World w(with_warm_pool(2));
  w.restart();
  w.manager().set_warmer(refuse);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w, 2));
    EXPECT_EQ(warm(w), 0u);
    EXPECT_EQ((co_await w.create())->started_from, "pool");
  });
}

TEST(WarmPool, OneWhoseProgramHasEndedIsReplacedAndTheCallerSeesNothing) {
  World w(with_warm_pool(1));
  w.restart();
  w.manager().set_warmer(start_server);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return warm(w) == 1; }));
    for (auto& [id, running] : w.agent(w.runtime().ids().at(0))->executions) running.exited = true;
    const auto box = co_await w.create();
    EXPECT_EQ(box->started_from, "cold");
    EXPECT_TRUE(w.manager().executions(w.caller, box->id, {}, 10, "")->items.empty());
    EXPECT_TRUE(co_await eventually([&] { return warm(w) == 1; })) << "another one";
  });
}

TEST(WarmPool, OneThatHangsHoldsNothingUp) {
  World w(with_warm_pool(1));
  w.restart();
  w.manager().set_warmer(hang);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] {
      const auto ids = w.runtime().ids();
      const FakeAgent* agent = ids.empty() ? nullptr : w.agent(ids.at(0));
      return agent != nullptr && !agent->executions.empty();
    }));
    EXPECT_EQ((co_await w.create())->started_from, "cold");
    const auto began = Clock::now();
    co_await w.manager().close_pool();
    EXPECT_LT(Clock::now() - began, 30s) << "it is ended, not waited for";
    EXPECT_EQ(w.runtime().ids().size(), 1u) << "the caller's";
  });
}

TEST(WarmPool, OfADeadDaemonIsRemovedWithWhatRan) {
  World w(with_warm_pool(1));
  w.restart();
  w.manager().set_warmer(start_server);
  w.run([&]() -> Awaitable<void> { EXPECT_TRUE(co_await eventually([&] { return warm(w) == 1; })); });
  const std::string old = w.runtime().ids().at(0);
  w.restart();
  w.manager().set_warmer(start_server);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().box(old) == nullptr && warm(w) == 1; }));
    co_await w.manager().close_pool();
    EXPECT_TRUE(w.runtime().ids().empty());
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
