// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "metrics/metrics.h"
#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Type;
using channel::testing::eventually;
using channel::testing::Peer;
using testing::FakeRuntime;
using testing::World;

// Tells a `create` that runs beside the test.
struct Creation {
  std::optional<Result<SandboxInfo>> done;
};
std::shared_ptr<Creation> create_beside(World& w, CreateSpec spec = {}) {
  auto creation = std::make_shared<Creation>();
  auto task = [](World& world, CreateSpec s, std::shared_ptr<Creation> c) -> Awaitable<void> {
    c->done = co_await world.create(std::move(s));
  };
  spawn(w.executor(), "create", task(w, std::move(spec), creation));
  return creation;
}

std::string only_id(World& w) {
  ListFilter filter;
  filter.states = {State::kCreating, State::kReady, State::kEnding, State::kEnded};
  const auto page = w.manager().list(w.caller, filter).value();
  GB_ASSERT(page.items.size() == 1);
  return page.items[0].id;
}

// Nothing of any sandbox is left, and the place is free.
Awaitable<void> expect_clean(World& w) {
  EXPECT_TRUE(co_await eventually([&] { return w.runtime().ids().empty(); }));
  EXPECT_TRUE(std::filesystem::is_empty(w.config().data_dir + "/sandboxes"));
}

TEST(Lifecycle, CreateExecKill) {
  World w;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    EXPECT_TRUE(box.has_value()) << (box ? "" : box.error().message);
    auto execution = co_await w.exec(box->id, "exit 3");
    EXPECT_TRUE(co_await execution->wait(after(60s)));
    EXPECT_EQ(execution->info().outcome->exit_code, 3);
    auto killed = co_await w.manager().kill(w.caller, box->id);
    EXPECT_EQ(killed->info.state, State::kEnded);
    EXPECT_EQ(killed->info.ended->reason, "killed");
    killed = co_await w.manager().kill(w.caller, box->id);
    EXPECT_TRUE(killed->already_ended);
    co_await expect_clean(w);
  });
}

TEST(Lifecycle, KillWhileTheEngineStarts) {
  World w;
  w.runtime().hold_starts();
  w.run([&]() -> Awaitable<void> {
    auto creation = create_beside(w);
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().waiting_starts() == 1; }));
    auto kill = [](World& world, std::string id) -> Awaitable<void> { (void)co_await world.manager().kill(world.caller, id); };
    spawn(w.executor(), "kill", kill(w, only_id(w)));
    EXPECT_TRUE(co_await eventually([&] { return w.info(only_id(w)).state == State::kEnding; }));
    EXPECT_EQ(w.runtime().destroys, 0) << "a start under way was not waited for";
    w.runtime().release_starts();
    EXPECT_TRUE(co_await eventually([&] { return creation->done.has_value(); }));
    EXPECT_EQ(creation->done->error().code, Code::kSandboxEnded);
    EXPECT_EQ(w.info(only_id(w)).ended->reason, "killed");
    co_await expect_clean(w);
  });
}

TEST(Lifecycle, KillWhileItWaitsForItsTurnStartsNothing) {
  Config config;
  config.parallel_starts = 1;
  World w(config);
  w.runtime().hold_starts();
  w.run([&]() -> Awaitable<void> {
    auto first = create_beside(w);
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().waiting_starts() == 1; }));
    const std::string first_id = only_id(w);
    auto second = create_beside(w);
    EXPECT_TRUE(co_await eventually([&] { return w.manager().list(w.caller, {})->items.size() == 2; }));
    std::string second_id;
    const auto page = w.manager().list(w.caller, {}).value();
    for (const auto& item : page.items) {
      if (item.id != first_id) second_id = item.id;
    }
    auto killed = co_await w.manager().kill(w.caller, second_id);
    EXPECT_EQ(killed->info.state, State::kEnded);
    w.runtime().release_starts();
    EXPECT_TRUE(co_await eventually([&] { return first->done && second->done; }));
    EXPECT_TRUE(first->done->has_value());
    EXPECT_EQ(second->done->error().code, Code::kSandboxEnded);
    EXPECT_EQ(w.runtime().starts, 1);
    EXPECT_EQ(w.runtime().ids(), std::vector<std::string>{first_id});
  });
}

TEST(Lifecycle, KillWhileTheAgentIsAwaited) {
  World w;
  w.intercept = [](Peer&, channel::Frame& frame) -> Awaitable<bool> { co_return frame.type == Type::kHello; };
  w.run([&]() -> Awaitable<void> {
    auto creation = create_beside(w);
    EXPECT_TRUE(co_await eventually([&] { return !w.runtime().ids().empty(); }));
    (void)co_await w.manager().kill(w.caller, only_id(w));
    EXPECT_TRUE(co_await eventually([&] { return creation->done.has_value(); }));
    EXPECT_FALSE(creation->done->has_value());
    co_await expect_clean(w);
  });
}

TEST(Lifecycle, TenKillsAtOnceAreOneEnd) {
  for (const bool is_frozen : {false, true}) {
    Config config;
    config.freeze_after = 1ms;
    World w(config, runtime::Tier::kGvisor);
    w.run([&]() -> Awaitable<void> {
      auto box = co_await w.create();
      if (is_frozen) EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).frozen; }));
      int done = 0;
      auto kill = [](World& world, std::string id, int* count) -> Awaitable<void> {
        auto killed = co_await world.manager().kill(world.caller, id);
        EXPECT_EQ(killed->info.state, State::kEnded);
        ++*count;
      };
      for (int i = 0; i < 10; ++i) spawn(w.executor(), "kill", kill(w, box->id, &done));
      EXPECT_TRUE(co_await eventually([&] { return done == 10; }));
      EXPECT_EQ(w.runtime().destroys, 1);
      co_await expect_clean(w);
    });
  }
}

struct FailureCase {
  const char* name;
  FakeRuntime::Step step;
};
class StartFailure : public ::testing::TestWithParam<FailureCase> {};

TEST_P(StartFailure, GivesItsPlaceBackAndLeavesNothing) {
  Config config;
  config.max_sandboxes = 1;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    for (int i = 0; i < 3; ++i) {
      w.runtime().fail_at = GetParam().step;
      auto failed = co_await w.create();
      EXPECT_FALSE(failed.has_value());
      EXPECT_NE(failed ? Code::kCapacity : failed.error().code, Code::kCapacity);
      co_await expect_clean(w);
    }
    w.runtime().fail_at = FakeRuntime::Step::kNone;
    auto box = co_await w.create();
    EXPECT_TRUE(box.has_value());
  });
}
INSTANTIATE_TEST_SUITE_P(Steps, StartFailure,
                         ::testing::Values(FailureCase{"Prepare", FakeRuntime::Step::kPrepare},
                                           FailureCase{"Start", FakeRuntime::Step::kStart},
                                           FailureCase{"DeathFd", FakeRuntime::Step::kDeathFd}),
                         [](const auto& param) { return param.param.name; });

// What an agent can do instead of a HELLO_OK.
struct HelloCase {
  const char* name;
  std::function<std::string(const std::string& hello)> answer;
};
class BadHello : public ::testing::TestWithParam<HelloCase> {};

TEST_P(BadHello, FailsTheStartInTimeAndLeavesNothing) {
  Config config;
  config.start_timeout = 300ms;
  World w(config);
  w.intercept = [](Peer& peer, channel::Frame& frame) -> Awaitable<bool> {
    if (frame.type != Type::kHello) co_return false;
    co_await peer.write(GetParam().answer(frame.payload));
    co_return true;
  };
  w.run([&]() -> Awaitable<void> {
    const auto began = Clock::now();
    auto failed = co_await w.create();
    const auto took = Clock::now() - began;
    EXPECT_EQ(failed ? Code::kInternal : failed.error().code == Code::kAgentProtocol ? Code::kStartFailed : failed.error().code,
              Code::kStartFailed);
    EXPECT_LT(took, 30s) << "half of what it may take unless told otherwise";
    EXPECT_EQ(w.info(only_id(w)).ended->reason, "start_failed");
    co_await expect_clean(w);
  });
}

std::string hello_with(const std::string& hello, const std::string& executions) {
  return channel::testing::hello_answer(hello, executions);
}
std::string million_executions() {
  std::string list = "[";
  for (int i = 0; i < 100'000; ++i) list += R"({"id":"ex-)" + std::to_string(i) + "\"},";
  return list + "{}]";
}
INSTANTIATE_TEST_SUITE_P(
    Answers, BadHello,
    ::testing::Values(HelloCase{"None", [](const std::string&) { return std::string(); }},
                      HelloCase{"WrongSync", [](const std::string&) { return channel::sync_mark(std::string(16, 'x')); }},
                      HelloCase{"NotJson", [](const std::string& h) {
                                  std::string out = hello_with(h, "[]");
                                  return out.substr(0, channel::kSyncBytes) + channel::testing::frame(0, Type::kHelloOk, "{");
                                }},
                      HelloCase{"OtherVersion", [](const std::string& h) {
                                  std::string out = hello_with(h, "[]");
                                  return out.substr(0, channel::kSyncBytes) +
                                         channel::testing::frame(0, Type::kHelloOk, R"({"version":2,"executions":[]})");
                                }},
                      HelloCase{"AnExecutionInANewSandbox",
                                [](const std::string& h) { return hello_with(h, R"([{"id":"ex-abc","state":"running"}])"); }},
                      HelloCase{"AMillionExecutions", [](const std::string& h) { return hello_with(h, million_executions()); }},
                      HelloCase{"DepthBomb", [](const std::string& h) { return hello_with(h, std::string(100'000, '[')); }}),
    [](const auto& param) { return param.param.name; });

TEST(Lifecycle, TheLimitHoldsUnderAHundredCreatesAtOnce) {
  Config config;
  config.max_sandboxes = 60;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    std::vector<std::shared_ptr<Creation>> all;
    for (int i = 0; i < 100; ++i) all.push_back(create_beside(w));
    EXPECT_TRUE(co_await eventually([&] { return std::all_of(all.begin(), all.end(), [](const auto& c) { return c->done.has_value(); }); }));
    int made = 0, refused = 0;
    for (const auto& c : all) {
      if (*c->done) ++made;
      if (!*c->done && c->done->error().code == Code::kCapacity) ++refused;
    }
    EXPECT_EQ(made, 60);
    EXPECT_EQ(refused, 40);
    EXPECT_LE(w.runtime().most_at_once, config.parallel_starts);
    for (const auto& c : all) {
      if (*c->done) (void)co_await w.manager().kill(w.caller, (*c->done)->id);
    }
    co_await expect_clean(w);
    auto again = co_await w.create();
    EXPECT_TRUE(again.has_value());
  });
}

// A client that leaves does not cancel its call (the HTTP server lets it end); killing what it started is how it is undone.
TEST(Lifecycle, ThirtyKilledOnTheirWayGiveTheirPlacesBack) {
  Config config;
  config.max_sandboxes = 60;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    w.runtime().hold_starts();
    std::vector<std::shared_ptr<Creation>> all;
    for (int i = 0; i < 60; ++i) all.push_back(create_beside(w));
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().waiting_starts() == config.parallel_starts; }));
    ListFilter filter;
    filter.limit = 30;
    const auto first = w.manager().list(w.caller, filter).value();
    auto kill = [](World& world, std::string id) -> Awaitable<void> { (void)co_await world.manager().kill(world.caller, id); };
    for (const auto& item : first.items) spawn(w.executor(), "kill", kill(w, item.id));
    co_await sleep_for(5ms);
    w.runtime().release_starts();
    EXPECT_TRUE(co_await eventually([&] { return std::all_of(all.begin(), all.end(), [](const auto& c) { return c->done.has_value(); }); }));
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().ids().size() == 30; }));
    for (int i = 0; i < 30; ++i) EXPECT_TRUE((co_await w.create()).has_value());
    auto over = co_await w.create();
    EXPECT_EQ(over.error().code, Code::kCapacity);
  });
}

TEST(Lifecycle, LifetimeAndIdleEndIt) {
  World w;
  w.run([&]() -> Awaitable<void> {
    CreateSpec short_lived, lasting;
    short_lived.lifetime = 100ms;
    lasting.lifetime = Millis(0);
    (void)co_await w.create(short_lived);  // by now it may have ended
    const std::string a = only_id(w);
    auto b = co_await w.create(lasting);
    auto busy = co_await w.exec(b->id, "hang");
    Update idle;
    idle.idle_timeout = 100ms;
    EXPECT_TRUE((co_await w.manager().update(w.caller, b->id, idle)).has_value());
    EXPECT_TRUE(co_await eventually([&] { return w.info(a).state == State::kEnded; }));
    EXPECT_EQ(w.info(a).ended->reason, "lifetime");
    co_await sleep_for(200ms);
    EXPECT_EQ(w.info(b->id).state, State::kReady) << "idle though an execution runs";
    EXPECT_TRUE((co_await busy->kill()).has_value());
    EXPECT_TRUE(co_await eventually([&] { return w.info(b->id).state == State::kEnded; }));
    EXPECT_EQ(w.info(b->id).ended->reason, "idle");
  });
}

TEST(Lifecycle, TimeoutsThatOverflowAreRefused) {
  World w;
  w.run([&]() -> Awaitable<void> {
    CreateSpec spec;
    spec.idle_timeout = Millis::max();
    EXPECT_EQ((co_await w.create(spec)).error().code, Code::kInvalidArgument);
    auto box = co_await w.create();
    Update update;
    update.idle_timeout = Millis::max();
    EXPECT_EQ((co_await w.manager().update(w.caller, box->id, update)).error().code, Code::kInvalidArgument);
    update.idle_timeout = Millis(-1);
    EXPECT_EQ((co_await w.manager().update(w.caller, box->id, update)).error().code, Code::kInvalidArgument);
  });
}

TEST(Lifecycle, AnEnvThatDoesNotFitAHelloIsRefusedBeforeAnythingStarts) {
  World w;
  w.run([&]() -> Awaitable<void> {
    CreateSpec spec;
    spec.env["X"] = std::string(250'000, '\1');  // six bytes each as JSON
    EXPECT_EQ((co_await w.create(spec)).error().code, Code::kPayloadTooLarge);
    EXPECT_EQ(w.runtime().starts, 0);
  });
}

TEST(Lifecycle, FreezesWhenQuietAndThawsForACall) {
  Config config;
  config.freeze_after = 20ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).frozen; }));
      auto execution = co_await w.exec(box->id, "exit 0");
      EXPECT_TRUE(co_await execution->wait(after(60s)));
    }
    auto hanging = co_await w.exec(box->id, "hang");
    const int before = w.runtime().freezes;
    co_await sleep_for(100ms);
    EXPECT_EQ(w.runtime().freezes, before) << "frozen under a running execution";
    EXPECT_TRUE((co_await hanging->kill()).has_value());
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).frozen; }));
  });
}

TEST(Lifecycle, WhatServesOthersIsNoReasonToKeepItAwakeOnceItHasSpoken) {
  Config config;
  config.freeze_after = 20ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    ExecSpec spec;
    spec.background = true;
    spec.command = "hang";
    auto starting = co_await w.manager().execute(w.caller, box->id, spec);
    EXPECT_TRUE(starting.has_value());
    const int before = w.runtime().freezes;
    co_await sleep_for(100ms);
    EXPECT_EQ(w.runtime().freezes, before) << "frozen while it started";
    EXPECT_TRUE((co_await (*starting)->kill()).has_value());
    spec.command = "serve ready";
    auto serving = co_await w.manager().execute(w.caller, box->id, spec);
    EXPECT_TRUE(serving.has_value());
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).frozen; }));
    EXPECT_EQ(w.info(box->id).running_executions, 0);
    EXPECT_FALSE((*serving)->ended());
  });
}

TEST(Lifecycle, AFreezeThatFailsIsNotTriedAgainAtOnce) {
  Config config;
  config.freeze_after = 1ms;
  World w(config, runtime::Tier::kGvisor);
  w.runtime().freeze_failures = 1'000'000;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().freezes > 0; }));
    co_await sleep_for(200ms);
    EXPECT_EQ(w.runtime().freezes, 1);
    EXPECT_FALSE(w.info(box->id).frozen);
  });
}

TEST(Lifecycle, DestroyIsRepeatedUntilItWorksAndHoldsThePlace) {
  Config config;
  config.max_sandboxes = 1;
  World w(config);
  w.runtime().destroy_failures = 1'000'000;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    auto kill = [](World& world, std::string id) -> Awaitable<void> { (void)co_await world.manager().kill(world.caller, id); };
    spawn(w.executor(), "kill", kill(w, box->id));
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().destroys >= 3; }));
    EXPECT_EQ((co_await w.create()).error().code, Code::kCapacity);
    EXPECT_EQ(w.info(box->id).state, State::kEnding);
    w.runtime().destroy_failures = 0;
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kEnded; }));
    EXPECT_TRUE(w.runtime().ids().empty());
    EXPECT_TRUE((co_await w.create()).has_value());
  });
}

TEST(Lifecycle, DeathOfTheProcessIsToldWithItsReason) {
  for (const bool oom : {false, true}) {
    World w;
    w.runtime().died_of_oom = oom;
    w.run([&]() -> Awaitable<void> {
      auto box = co_await w.create();
      auto execution = co_await w.exec(box->id, "hang");
      w.runtime().kill(box->id);
      EXPECT_TRUE(co_await execution->wait(after(60s)));
      EXPECT_EQ(execution->info().outcome->type, "sandbox_ended");
      EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kEnded; }));
      EXPECT_EQ(w.info(box->id).ended->reason, oom ? "oom" : "crashed");
      EXPECT_EQ(w.info(box->id).running_executions, 0);
      auto late = co_await w.manager().execute(w.caller, box->id, {.command = "exit 0"});
      EXPECT_EQ(late.error().code, Code::kSandboxEnded);
      EXPECT_EQ(late.error().details["reason"], oom ? "oom" : "crashed");
    });
  }
}

TEST(Lifecycle, CallsAfterTheChannelWasLostEndAtOnce) {
  Config config;
  config.patience.lost_note = 10min;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    co_await w.runtime().box(box->id)->peer.write(channel::testing::frame(99, Type::kGone, ""));
    co_await sleep_for(50ms);  // lost, and not ended yet
    const auto began = Clock::now();
    auto execution = co_await w.manager().execute(w.caller, box->id, {.command = "exit 0"});
    EXPECT_FALSE(execution.has_value());
    auto entry = co_await w.manager().stat(w.caller, box->id, "", "/", true);
    EXPECT_FALSE(entry.has_value());
    EXPECT_LT(Clock::now() - began, 20s) << "of 30 s and of 60 s that an answer may take";
    EXPECT_EQ(w.info(box->id).state, State::kReady);
    w.runtime().kill(box->id);
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kEnded; }));
    EXPECT_EQ(w.info(box->id).ended->reason, "crashed");
    co_await expect_clean(w);
  });
}

// False when it was taken for dead although it answered.
bool lives_while_it_answers(Millis silence) {
  Config config;
  config.patience.ping_after = silence / 15;
  config.patience.dead_after = silence;
  config.freeze_after = 0ms;  // a frozen one is not asked
  World w(config);
  bool is_deaf = false, has_lived = false;
  w.intercept = [&](Peer&, channel::Frame& frame) -> Awaitable<bool> { co_return frame.type == Type::kPing && is_deaf; };
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    co_await sleep_for(2 * silence);
    has_lived = w.info(box->id).state == State::kReady;
    is_deaf = true;
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kEnded; }));
    EXPECT_EQ(w.info(box->id).ended->reason, "crashed");
  });
  return has_lived;
}

// Where the machine stands still for longer than the agent may be silent, the agent does, too.
TEST(Lifecycle, AnAgentThatNoLongerAnswersIsDeadAndOneThatDoesIsNot) {
  EXPECT_TRUE(lives_while_it_answers(300ms) || lives_while_it_answers(3s) || lives_while_it_answers(20s));
}

// ---- After a restart ----

std::string leaked() {
  const std::string page = metrics::registry().text();
  const size_t at = page.find("\nglovebox_leaked ");
  return at == std::string::npos ? "" : page.substr(at + 17, page.find('\n', at + 1) - at - 17);
}

TEST(Leaks, WhatBelongsToNoSandboxIsCountedAndWhatDoesIsNot) {
  Config config;
  config.patience.leak_look = 5ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    EXPECT_TRUE(box.has_value());
    w.runtime().leave_behind("sb-of-nobody");
    EXPECT_TRUE(co_await eventually([&] { return leaked() == "1"; }));
    co_await sleep_for(20ms);
    EXPECT_EQ(leaked(), "1");
  });
  w.restart();  // sweeps
  w.run([&]() -> Awaitable<void> {
    EXPECT_EQ(w.runtime().ids().size(), 1u);
    EXPECT_TRUE(co_await eventually([&] { return leaked() == "0"; }));
  });
}

TEST(Leaks, OutputOfAForgottenSandboxGoesAtTheNextStart) {
  World w;
  const std::string spool = w.config().data_dir + "/spool/";
  std::string known;
  w.run([&]() -> Awaitable<void> { known = (co_await w.create())->id; });
  for (const std::string& id : {known, std::string("sb-of-nobody")}) std::filesystem::create_directories(spool + id);
  w.restart();
  EXPECT_TRUE(std::filesystem::exists(spool + known));
  EXPECT_FALSE(std::filesystem::exists(spool + "sb-of-nobody"));
}

TEST(Adoption, AReadySandboxGoesOn) {
  World w;
  std::string id, execution_id;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    execution_id = (co_await w.exec(id, "hang"))->info().id;
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto execution = co_await w.manager().execution(w.caller, id, execution_id);
    EXPECT_TRUE(execution.has_value());
    EXPECT_EQ(w.info(id).running_executions, 1);
    EXPECT_TRUE((co_await (*execution)->kill()).has_value());
    EXPECT_EQ((*execution)->info().outcome->type, "killed_by_caller");
    EXPECT_EQ(w.info(id).running_executions, 0);
    auto next = co_await w.exec(id, "exit 4");
    EXPECT_TRUE(co_await next->wait(after(60s)));
    EXPECT_EQ(next->info().outcome->exit_code, 4);
  });
}

TEST(Adoption, CallsBeforeItWait) {
  World w;
  std::string id;
  w.run([&]() -> Awaitable<void> { id = (co_await w.create())->id; });
  w.restart_without_recovery();
  w.run([&]() -> Awaitable<void> {
    std::optional<Code> answered;
    auto call = [](World& world, std::string box, std::optional<Code>* code) -> Awaitable<void> {
      auto got = co_await world.manager().make_directory(world.caller, box, "", "/x", true, 0755);
      *code = got ? Code::kInternal : got.error().code;
    };
    spawn(w.executor(), "call", call(w, id, &answered));
    co_await sleep_for(20ms);
    EXPECT_FALSE(answered.has_value());
    co_await w.manager().recover();
    EXPECT_TRUE(co_await eventually([&] { return answered.has_value(); }));
    EXPECT_EQ(answered, Code::kInternal) << "the fake agent answers everything with ok";
  });
}

TEST(Adoption, KillBeforeIt) {
  World w;
  std::string id;
  w.run([&]() -> Awaitable<void> { id = (co_await w.create())->id; });
  w.restart_without_recovery();
  w.run([&]() -> Awaitable<void> {
    auto killed = co_await w.manager().kill(w.caller, id);
    EXPECT_EQ(killed->info.state, State::kEnded);
    co_await w.manager().recover();
    co_await expect_clean(w);
  });
}

TEST(Adoption, KillDuringIt) {
  World w;
  std::string id;
  w.intercept = [n = 0](Peer&, channel::Frame& frame) mutable -> Awaitable<bool> {
    co_return frame.type == Type::kHello && n++ > 0;  // the second daemon gets no answer
  };
  w.run([&]() -> Awaitable<void> { id = (co_await w.create())->id; });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    co_await sleep_for(30ms);
    auto killed = co_await w.manager().kill(w.caller, id);
    EXPECT_EQ(killed->info.state, State::kEnded);
    EXPECT_EQ(killed->info.ended->reason, "killed");
    co_await expect_clean(w);
  });
}

TEST(Adoption, AnAgentThatDoesNotAnswerIsHostLost) {
  Config config;
  config.patience.adopt = 100ms;
  World w(config);
  std::string id;
  w.intercept = [n = 0](Peer&, channel::Frame& frame) mutable -> Awaitable<bool> {
    co_return frame.type == Type::kHello && n++ > 0;
  };
  w.run([&]() -> Awaitable<void> { id = (co_await w.create())->id; });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
    EXPECT_EQ(w.info(id).ended->reason, "host_lost");
    co_await expect_clean(w);
  });
}

TEST(Adoption, OneThatWasStartingIsCleanedUp) {
  World w;
  w.intercept = [](Peer&, channel::Frame& frame) -> Awaitable<bool> { co_return frame.type == Type::kHello; };
  w.run([&]() -> Awaitable<void> {
    create_beside(w);
    EXPECT_TRUE(co_await eventually([&] { return !w.runtime().ids().empty(); }));
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return w.info(only_id(w)).state == State::kEnded; }));
    EXPECT_EQ(w.info(only_id(w)).ended->reason, "start_failed");
    co_await expect_clean(w);
  });
}

TEST(Adoption, OneThatWasEndingGoesOnEndingForTheSameReason) {
  World w;
  std::string id;
  w.runtime().destroy_failures = 1000;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    auto kill = [](World& world, std::string box) -> Awaitable<void> { (void)co_await world.manager().kill(world.caller, box); };
    spawn(w.executor(), "kill", kill(w, id));
    EXPECT_TRUE(co_await eventually([&] { return w.runtime().destroys > 0; }));
  });
  w.runtime().destroy_failures = 0;
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
    EXPECT_EQ(w.info(id).ended->reason, "killed");
    co_await expect_clean(w);
  });
}

TEST(Adoption, OneThatDiedMeanwhileIsHostLostAndItsExecutionsEnd) {
  World w;
  std::string id, execution_id;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    auto execution = co_await w.exec(id, "hang");
    execution_id = execution->info().id;
    co_await sleep_for(100ms);  // it is recorded by then
  });
  w.runtime().kill(id);
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
    EXPECT_EQ(w.info(id).ended->reason, "host_lost");
    auto execution = co_await w.manager().execution(w.caller, id, execution_id);
    EXPECT_EQ((*execution)->info().outcome->type, "sandbox_ended");
    EXPECT_EQ(w.info(id).running_executions, 0);
  });
}

TEST(Adoption, AnExecutionTheAgentForgotIsInterruptedAndCountsForNothing) {
  Config config;
  config.freeze_after = 1ms;
  World w(config, runtime::Tier::kGvisor);
  std::string id, lost_id;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    lost_id = (co_await w.exec(id, "hang"))->info().id;
    co_await sleep_for(100ms);
  });
  w.agent(id)->executions.clear();
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto lost = co_await w.manager().execution(w.caller, id, lost_id);
    EXPECT_TRUE(co_await (*lost)->wait(after(60s)));
    EXPECT_EQ((*lost)->info().outcome->type, "interrupted");
    EXPECT_EQ(w.info(id).running_executions, 0);
    auto running = co_await w.exec(id, "hang");
    EXPECT_EQ(w.info(id).running_executions, 1);
    co_await sleep_for(50ms);
    EXPECT_FALSE(w.info(id).frozen) << "frozen under a running execution";
    EXPECT_TRUE((co_await running->kill()).has_value());
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).frozen; }));
  });
}

TEST(Adoption, AnExecutionRecordedButNotForgottenIsForgotten) {
  World w;
  std::string id, done_id;
  bool is_deaf = true;
  w.intercept = [&](Peer&, channel::Frame& frame) -> Awaitable<bool> { co_return frame.type == Type::kForget && is_deaf; };
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    auto done = co_await w.exec(id, "print hello");
    done_id = done->info().id;
    EXPECT_TRUE(co_await done->wait(after(60s)));
    co_await sleep_for(50ms);
  });
  is_deaf = false;
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto done = co_await w.manager().execution(w.caller, id, done_id);
    EXPECT_TRUE(co_await eventually([&] { return w.agent(id)->executions.empty(); }));
    const auto chunks = co_await (*done)->read(0, 100);
    EXPECT_EQ(chunks->at(0).data, "hello");
    EXPECT_EQ((*done)->info().stdout_bytes, 5u);
    EXPECT_EQ(w.info(id).running_executions, 0);
    EXPECT_EQ(w.info(id).state, State::kReady);
  });
}

// The list of executions in a HELLO_OK is hostile, too: an id becomes a file name, and two of one kind would share a receiver.
TEST(Adoption, ImpossibleExecutionsAreRefused) {
  for (const char* list : {R"([{"id":"../../../../tmp/glovebox-escaped","state":"running"}])", R"([{"id":"ex-a"},{"id":"ex-a"}])",
                           R"([{"id":""}])", R"([{"id":"ex-a/b"}])", R"([{"id":"ex-A"}])", R"([{"id":"ex-a","pid":-1}])", R"([7])"}) {
    World w;
    std::string id;
    w.intercept = [n = 0, list](Peer& peer, channel::Frame& frame) mutable -> Awaitable<bool> {
      if (frame.type != Type::kHello || n++ == 0) co_return false;
      co_await peer.write(channel::testing::hello_answer(frame.payload, list));
      co_return true;
    };
    w.run([&]() -> Awaitable<void> { id = (co_await w.create())->id; });
    w.restart();
    w.run([&]() -> Awaitable<void> {
      EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; })) << list;
      EXPECT_EQ(w.info(id).ended->reason, "host_lost") << list;
      EXPECT_TRUE(w.manager().executions(w.caller, id, {}, 10, "")->items.empty()) << list;
    });
  }
}

}  // namespace
}  // namespace glovebox::sandbox
