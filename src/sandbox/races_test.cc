// SPDX-License-Identifier: Apache-2.0
// What happens while something else is on its way.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <set>

#include "sandbox/beside.h"
#include "sandbox/execution.h"
#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Frame;
using channel::Type;
using channel::testing::eventually;
using channel::testing::Peer;
using testing::FakeRuntime;
using testing::json_text;
using testing::World;
using Tier = runtime::Tier;
namespace fs = std::filesystem;

size_t files_in(const std::string& directory) {
  std::error_code ec;
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory, ec), fs::directory_iterator()));
}

// Holds threads up until it is opened.
class Barrier {
 public:
  void wait() {
    ++arrived;
    opened_.wait();
  }
  void open() { open_.set_value(); }
  std::atomic<int> arrived{0};

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

// ---- Executions ----

Async<void> greet(std::shared_ptr<channel::Link> link) {
  GB_CO_TRYV(co_await link->hello("{}", after(5s)));
  co_return Result<void>();
}

TEST(Races, OutputThatIsBeingWrittenAtTheEndOfItsExecutionStaysReadable) {
  testing::DataDirectory data;
  channel::testing::TestLoop loop;
  const auto store = store::open_sqlite(data.path() + "/glovebox.db").value();
  BlockingPool pool(1);
  const Config config;
  const auto executor = loop.executor();
  loop.run([&]() -> Awaitable<void> {
    Peer peer;
    auto [to, from] = peer.take_daemon_ends();
    const auto link =
        channel::Link::create(executor, std::move(to), std::move(from), [](const Error&) {});
    Beside greeted(executor, "hello", greet(link));
    EXPECT_TRUE(co_await peer.shake_hands());
    EXPECT_TRUE(co_await greeted.join());
    ExecInfo info;
    info.id = "ex-1";
    info.sandbox_id = "sb-1";
    const std::string spool = data.path() + "/spool/sb-1/ex-1";
    const auto execution =
        std::make_shared<RunningExecution>(ExecutionContext{executor, &pool, store.get(), &config},
                                           info, spool, RunningExecution::Counts{});
    Beside started(executor, "start",
                   execution->start(link, R"({"id":"ex-1"})", std::nullopt, false, Millis(0)));
    const uint32_t channel = (co_await peer.next_of(Type::kExec))->channel;
    EXPECT_TRUE(co_await peer.send(channel, Type::kStarted, R"({"pid":7})"));
    EXPECT_TRUE(co_await peer.send(channel, Type::kOutput,
                                   channel::stream_header(channel::kStdout, 0) + "hello"));
    EXPECT_TRUE(co_await started.join());
    EXPECT_TRUE(co_await eventually([&] { return execution->info().stdout_bytes == 5; }));
    Barrier barrier;
    pool.post([&] { barrier.wait(); });
    spawn(executor, "settle", execution->settle_output());  // as for a snapshot
    EXPECT_TRUE(co_await eventually([&] { return barrier.arrived == 1; }));
    EXPECT_TRUE(co_await peer.send(
        channel, Type::kExited,
        R"({"outcome":"exited","code":0,"children":false,"stdout_bytes":5,"stderr_bytes":0})"));
    EXPECT_TRUE(co_await execution->wait(after(5s)));
    co_await sleep_for(50ms);
    barrier.open();
    EXPECT_TRUE((co_await peer.next_of(Type::kForget)).has_value()) << "its end is recorded";
    EXPECT_TRUE(co_await eventually([&] { return fs::exists(spool + ".out"); }));
    co_await sleep_for(50ms);
    const auto chunks = co_await execution->read(0, 100);
    EXPECT_TRUE(chunks.has_value());
    EXPECT_EQ(chunks->at(0).data, "hello");
  }());
}

// ---- Images ----

TEST(Races, AnAgentThatIsLostWhileItsSandboxIsTakenUpDoesNotTakeTheImageWithIt) {
  Config config;
  config.patience.lost_note = 20ms;
  World w(config, Tier::kGvisor);
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    EXPECT_TRUE(co_await w.manager().snapshots().hibernate(w.caller, id, {}));
    w.intercept = [](Peer& peer, Frame& frame) -> Awaitable<bool> {
      if (frame.type == Type::kHello) peer.close_output();
      co_return true;
    };
    EXPECT_FALSE(co_await w.manager().resume(w.caller, id));
    co_await sleep_for(200ms);
    EXPECT_EQ(w.info(id).state, State::kPaused);
    EXPECT_EQ(files_in(w.config().data_dir + "/hibernated"), 1u);
    w.intercept = nullptr;
    EXPECT_TRUE(co_await w.manager().resume(w.caller, id));
    co_await sleep_for(100ms);
    EXPECT_EQ(w.info(id).state, State::kReady);
  });
}

TEST(Races, AnImageThatCouldNotBeWrittenTakesNoRoom) {
  for (const Tier tier : {Tier::kContainer, Tier::kGvisor}) {
    World w({}, tier);
    w.run([&]() -> Awaitable<void> {
      const std::string id = (co_await w.create())->id;
      w.runtime().fail_at = FakeRuntime::Step::kSnapshot;
      EXPECT_FALSE(co_await w.manager().snapshots().hibernate(w.caller, id, {}));
      EXPECT_EQ(files_in(w.config().data_dir + "/hibernated"), 0u);
      w.runtime().fail_at = FakeRuntime::Step::kNone;
      EXPECT_TRUE(co_await (co_await w.exec(id, "exit 0"))->wait(after(5s)));
    });
  }
}

// The engine freezes for a snapshot, and thaws what it found thawed.
TEST(Races, ASnapshotWaitsForAThawThatIsUnderWay) {
  Config config;
  config.freeze_after = 10ms;
  World w(config);
  Barrier thaw;
  w.runtime().at_work = [&](std::string_view what) {
    if (what == "thaw") thaw.wait();
  };
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).frozen; }));
    const auto call = [](World& world, std::string box) -> Async<void> {
      (void)co_await world.exec(box, "exit 0");
      co_return Result<void>();
    };
    const auto copy = [](World& world, std::string box) -> Async<void> {
      GB_CO_TRYV(co_await world.manager().snapshots().snapshot(world.caller, box, {}));
      co_return Result<void>();
    };
    Beside called(w.executor(), "call", call(w, id));
    EXPECT_TRUE(co_await eventually([&] { return thaw.arrived == 1; }));
    Beside copied(w.executor(), "copy", copy(w, id));
    co_await sleep_for(100ms);
    EXPECT_EQ(w.runtime().snapshots, 0);
    thaw.open();
    EXPECT_TRUE(co_await copied.join());
    EXPECT_TRUE(co_await called.join());
    EXPECT_EQ(w.runtime().snapshots, 1);
  });
}

TEST(Races, ChildrenHaveTheSecretsOfAParentThatIsKilledMeanwhile) {
  World w;
  Barrier snapshot;
  w.runtime().at_work = [&](std::string_view what) {
    if (what == "snapshot") snapshot.wait();
  };
  w.run([&]() -> Awaitable<void> {
    CreateSpec spec;
    spec.secrets = {{"TOKEN", "x"}};
    const std::string id = (co_await w.create(spec))->id;
    std::vector<SandboxInfo> children;
    const auto fork = [](World& world, std::string box,
                         std::vector<SandboxInfo>* out) -> Async<void> {
      ForkSpec how;
      how.count = 1;
      how.inherit_secrets = true;
      GB_CO_TRY(*out, co_await world.manager().snapshots().fork(world.caller, box, how));
      co_return Result<void>();
    };
    const auto kill = [](World& world, std::string box) -> Async<void> {
      GB_CO_TRYV(co_await world.manager().kill(world.caller, box));
      co_return Result<void>();
    };
    Beside forked(w.executor(), "fork", fork(w, id, &children));
    EXPECT_TRUE(co_await eventually([&] { return snapshot.arrived == 1; }));
    Beside killed(w.executor(), "kill", kill(w, id));
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnding; }));
    snapshot.open();
    EXPECT_TRUE(co_await forked.join());
    EXPECT_TRUE(co_await killed.join());
    EXPECT_EQ(children.at(0).secrets.at("TOKEN"), "x");
  });
}

TEST(Races, WhatIsMadeWhileEverythingEndsEndsToo) {
  World w;
  Barrier snapshot;
  w.runtime().at_work = [&](std::string_view what) {
    if (what == "snapshot") snapshot.wait();
  };
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    const auto fork = [](World& world, std::string box) -> Async<void> {
      ForkSpec how;
      how.count = 2;
      GB_CO_TRYV(co_await world.manager().snapshots().fork(world.caller, box, how));
      co_return Result<void>();
    };
    const auto end = [](World& world) -> Async<void> {
      co_await world.manager().end_all("killed");
      co_return Result<void>();
    };
    Beside forked(w.executor(), "fork", fork(w, id));
    EXPECT_TRUE(co_await eventually([&] { return snapshot.arrived == 1; }));
    Beside ended(w.executor(), "end", end(w));
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnding; }));
    snapshot.open();
    (void)co_await forked.join();
    (void)co_await ended.join();
    EXPECT_TRUE(w.runtime().ids().empty());
    EXPECT_EQ((co_await w.create()).error().code, Code::kUnavailable);
  });
}

TEST(Races, ASnapshotThatIsRenamedWhileItIsFinishedIsThereAfterARestart) {
  World w;
  std::string snapshot;
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    auto& snapshots = w.manager().snapshots();
    const auto copy = [](World& world, std::string box) -> Async<void> {
      GB_CO_TRYV(co_await world.manager().snapshots().snapshot(world.caller, box, {}));
      co_return Result<void>();
    };
    Beside copied(w.executor(), "copy", copy(w, id));
    EXPECT_TRUE(co_await eventually(
        [&] { return !snapshots.list_snapshots(w.caller, {})->items.empty(); }));
    snapshot = snapshots.list_snapshots(w.caller, {})->items.at(0).id;
    while (snapshots.get_snapshot(w.caller, snapshot)->state == "building") {
      EXPECT_TRUE(co_await snapshots.update_snapshot(w.caller, snapshot, "named", std::nullopt));
    }
    EXPECT_TRUE(co_await copied.join());
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    const auto kept = w.manager().snapshots().get_snapshot(w.caller, snapshot);
    EXPECT_TRUE(kept.has_value());
    if (kept) EXPECT_EQ(kept->state, "ready");
    if (kept) EXPECT_EQ(kept->name, "named");
    co_return;
  });
}

// ---- The pool ----

Config with_pool() {
  Config config;
  config.pool = {{"base", Tier::kContainer, 1}};
  config.patience.adopt = 100ms;
  return config;
}
Awaitable<bool> is_full(World& w) {
  co_return co_await eventually([&w] { return w.manager().pool().at(0).ready == 1; });
}

// Its one sandbox hears nothing from the next claim on, and dies then, when it is told to.
void spoil_next_claim(World& w, bool dies) {
  auto is_spoilt = std::make_shared<bool>(false);
  w.intercept = [&w, dies, is_spoilt](Peer&, Frame& frame) -> Awaitable<bool> {
    if (frame.type != Type::kHello || !json_text(frame.payload, "pooled").empty() ||
        std::exchange(*is_spoilt, true))
      co_return false;
    if (dies) w.runtime().kill(json_text(frame.payload, "sandbox"));
    co_return true;
  };
  w.restart();
}

TEST(Races, CallsWithOneKeyMakeOneSandboxAlsoWhenTheClaimedOneWasNoGood) {
  World w(with_pool());
  spoil_next_claim(w, false);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w));
    std::set<std::string> made;
    int done = 0;
    const auto create = [](World& world, std::set<std::string>* ids,
                           int* count) -> Awaitable<void> {
      CreateSpec spec;
      spec.idempotency_key = "key";
      const auto box = co_await world.create(spec);
      EXPECT_TRUE(box.has_value());
      if (box) ids->insert(box->id);
      ++*count;
    };
    for (int i = 0; i < 3; ++i) spawn(w.executor(), "create", create(w, &made, &done));
    EXPECT_TRUE(co_await eventually([&] { return done == 3; }));
    EXPECT_EQ(made.size(), 1u);
    EXPECT_EQ(w.manager().list(w.caller, {})->items.size(), 1u);
  });
}

TEST(Races, OneThatDiesAsItIsClaimedIsReplacedAndTheCallerSeesNothing) {
  Config config = with_pool();
  config.max_sandboxes = 2;
  World w(config);
  spoil_next_claim(w, true);
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w));
    const auto box = co_await w.create();
    EXPECT_TRUE(box.has_value()) << box.error().message;
    EXPECT_EQ(box->started_from, "cold");
    EXPECT_EQ(w.manager().list(w.caller, {.states = {State::kReady, State::kEnded}})->items.size(),
              1u);
    EXPECT_TRUE((co_await w.create()).has_value()) << "its place is free";
    EXPECT_EQ((co_await w.create()).error().code, Code::kCapacity) << "once";
  });
}

TEST(Races, OneThatDiedBeforeACallIsForgotten) {
  World w(with_pool());
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await is_full(w));
    const std::string dead = w.runtime().ids().at(0);
    w.runtime().kill(dead);
    EXPECT_TRUE(co_await eventually([&] { return w.manager().pool().at(0).ready == 0; }));
    EXPECT_EQ((co_await w.create())->started_from, "cold");
    const auto ledger = store::open_sqlite(w.config().data_dir + "/glovebox.db").value();
    EXPECT_TRUE(co_await eventually([&] {
      const auto rows = ledger->load_sandboxes().value();
      return std::none_of(rows.begin(), rows.end(),
                          [&](const auto& row) { return row.id == dead; });
    }));
  });
}

// ---- Links ----

class FakeNetwork final : public network::Network {
 public:
  std::map<uint32_t, std::string> members;  // by link
  std::vector<std::string> adopted;

  void on_event(network::OnEvent) override {}
  void on_usage(network::OnUsage) override {}
  Async<network::Link> acquire() override {
    uint32_t number = 1;
    while (members.contains(number)) ++number;
    members[number] = "";
    co_return network::Link{number, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
  }
  void adopt(uint32_t link, const std::string& sandbox, const policy::NetworkPolicy&,
             const network::Usage&) override {
    adopted.push_back(sandbox);
    members[link] = sandbox;
  }
  Async<void> set_policy(uint32_t link, const std::string& sandbox,
                         const policy::NetworkPolicy&) override {
    members[link] = sandbox;
    co_return Result<void>();
  }
  Async<void> probe() override { co_return Result<void>(); }
  void release(uint32_t link) override { members.erase(link); }
  network::Usage usage(uint32_t) const override { return {}; }
  const policy::Operator& limits() const override { return limits_; }
  Status status() const override { return {true, true, "", members.size(), 0}; }
  Awaitable<void> recover() override { co_return; }
  Awaitable<void> stop() override { co_return; }

 private:
  policy::Operator limits_;
};

TEST(Races, ALinkOfAResumeThatFailedIsTheNextOnesAlone) {
  FakeNetwork network;
  Config config;
  config.default_network = std::make_shared<policy::NetworkPolicy>();
  World w(config);
  w.network = &network;
  w.intercept = [](Peer& peer, Frame& frame) -> Awaitable<bool> {  // files are written into it
    if (frame.type != Type::kEndToAgent) co_return false;
    co_await peer.send(frame.channel, Type::kResponse, R"({"ok":true})");
    co_return true;
  };
  w.restart();
  std::string laid_down, other;
  w.run([&]() -> Awaitable<void> {
    laid_down = (co_await w.create())->id;
    EXPECT_TRUE(co_await w.manager().snapshots().hibernate(w.caller, laid_down, {}));
    w.runtime().fail_at = FakeRuntime::Step::kStart;
    EXPECT_FALSE(co_await w.manager().resume(w.caller, laid_down));
    w.runtime().fail_at = FakeRuntime::Step::kNone;
    EXPECT_FALSE(w.info(laid_down).link.has_value());
    other = (co_await w.create())->id;
    EXPECT_EQ(network.members, (std::map<uint32_t, std::string>{{1, other}}));
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_EQ(network.adopted, std::vector<std::string>{other});
    EXPECT_TRUE(co_await eventually([&] { return w.info(other).state == State::kReady; }));
    EXPECT_TRUE(co_await w.manager().kill(w.caller, laid_down));
    EXPECT_EQ(network.members, (std::map<uint32_t, std::string>{{1, other}}));
  });
}

}  // namespace
}  // namespace glovebox::sandbox
