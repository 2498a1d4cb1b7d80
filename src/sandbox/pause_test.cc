// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::testing::eventually;
using testing::World;

Awaitable<Code> pause(World& w, std::string id) {
  auto paused = co_await w.manager().pause(w.caller, id);
  co_return paused ? Code::kInternal : paused.error().code;  // kInternal: it went well
}
constexpr Code kFine = Code::kInternal;

// Times that run out during a test: where the machine stands still for longer than the first one, it is done again with the next.
constexpr Millis kShortTimes[] = {200ms, 3000ms, 20'000ms};

bool stands_still(World& w, const std::string& id) { return w.runtime().box(id)->frozen; }

TEST(Pause, KeepsEverythingUntilItIsResumed) {
  World w;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    auto hanging = co_await w.exec(box->id, "hang");
    EXPECT_EQ(co_await pause(w, box->id), kFine);
    EXPECT_EQ(co_await pause(w, box->id), kFine) << "repeated";
    EXPECT_EQ(w.info(box->id).state, State::kPaused);
    EXPECT_EQ(w.info(box->id).paused->cause, "call");
    EXPECT_TRUE(stands_still(w, box->id));
    EXPECT_EQ(w.info(box->id).running_executions, 1);
    EXPECT_TRUE((co_await w.manager().resume(w.caller, box->id)).has_value());
    EXPECT_TRUE((co_await w.manager().resume(w.caller, box->id)).has_value()) << "repeated";
    EXPECT_EQ(w.info(box->id).state, State::kReady);
    EXPECT_FALSE(w.info(box->id).paused);
    EXPECT_FALSE(stands_still(w, box->id));
    EXPECT_TRUE((co_await hanging->kill()).has_value());
  });
}

TEST(Pause, CallsThatNeedItResumeIt) {
  using Need = std::function<Awaitable<bool>(World&, std::string, ExecutionPtr)>;
  const std::vector<std::pair<const char*, Need>> needs = {
      {"exec", [](World& w, std::string id, ExecutionPtr) -> Awaitable<bool> { co_return co_await w.exec(id, "exit 0") != nullptr; }},
      {"files", [](World& w, std::string id, ExecutionPtr) -> Awaitable<bool> {
         co_return (co_await w.manager().remove(w.caller, id, "", "/tmp/x", false)).has_value();
       }},
      {"stdin", [](World&, std::string, ExecutionPtr e) -> Awaitable<bool> { co_return (co_await e->write_stdin("x")).has_value(); }},
      {"signal", [](World&, std::string, ExecutionPtr e) -> Awaitable<bool> { co_return (co_await e->signal(15, false)).has_value(); }},
      {"kill", [](World&, std::string, ExecutionPtr e) -> Awaitable<bool> { co_return (co_await e->kill()).has_value(); }},
  };
  for (const auto& [name, need] : needs) {
    World w;
    w.run([&]() -> Awaitable<void> {
      auto box = co_await w.create();
      ExecSpec spec;
      spec.command = "hang";
      spec.keep_stdin = true;
      auto running = co_await w.manager().execute(w.caller, box->id, spec);
      EXPECT_EQ(co_await pause(w, box->id), kFine) << name;
      EXPECT_TRUE(co_await need(w, box->id, *running)) << name;
      EXPECT_EQ(w.info(box->id).state, State::kReady) << name;
      EXPECT_FALSE(stands_still(w, box->id)) << name;
    });
  }
}

TEST(Pause, LookingDoesNotResume) {
  World w;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    const std::string execution = (co_await w.exec(box->id, "hang"))->info().id;
    EXPECT_EQ(co_await pause(w, box->id), kFine);
    EXPECT_EQ(w.info(box->id).state, State::kPaused);
    auto looked = co_await w.manager().execution(w.caller, box->id, execution);
    EXPECT_FALSE((*looked)->ended());
    EXPECT_TRUE((co_await (*looked)->read(0, 100)).has_value());
    EXPECT_FALSE(co_await (*looked)->wait(after(20ms)));
    EXPECT_TRUE((co_await w.manager().usage(w.caller, box->id)).has_value());
    EXPECT_EQ((co_await w.manager().is_listening(w.caller, box->id, 80)).value(), std::nullopt);
    Update update;
    update.metadata = StringMap{{"a", "b"}};
    EXPECT_TRUE((co_await w.manager().update(w.caller, box->id, update)).has_value());
    EXPECT_EQ(w.info(box->id).state, State::kPaused);
    EXPECT_TRUE(stands_still(w, box->id));
  });
}

TEST(Pause, IsRefusedWhileACallIsUnderWayAndThenThatCallGoesOn) {
  Config config;
  config.patience.pause = 50ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    auto stuck = [](World& world, std::string id) -> Awaitable<void> {
      ExecSpec spec;
      spec.command = "never";
      (void)co_await world.manager().execute(world.caller, id, spec);
    };
    spawn(w.executor(), "stuck", stuck(w, box->id));
    EXPECT_TRUE(co_await eventually([&] { return w.agent(box->id)->seen["exec"] == 1; }));
    EXPECT_EQ(co_await pause(w, box->id), Code::kConflict);
    EXPECT_EQ(w.info(box->id).state, State::kReady);
    EXPECT_FALSE(stands_still(w, box->id));
    auto fine = co_await w.exec(box->id, "exit 0");
    EXPECT_TRUE(co_await fine->wait(after(60s)));
  });
}

TEST(Pause, IsLegalForTheReadyOnly) {
  World w;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    EXPECT_EQ(co_await pause(w, box->id), kFine);
    auto killed = co_await w.manager().kill(w.caller, box->id);
    EXPECT_EQ(killed->info.state, State::kEnded);
    EXPECT_FALSE(killed->info.paused);
    EXPECT_EQ(co_await pause(w, box->id), Code::kSandboxEnded);
    EXPECT_EQ((co_await w.manager().resume(w.caller, box->id)).error().code, Code::kSandboxEnded);
    EXPECT_EQ(co_await pause(w, "sb-nobody"), Code::kSandboxNotFound);
    EXPECT_TRUE(w.runtime().ids().empty());
  });
}

TEST(Pause, AFailedFreezeLeavesItReady) {
  World w;
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    w.runtime().freeze_failures = 1;
    EXPECT_EQ(co_await pause(w, box->id), Code::kIo);
    EXPECT_EQ(w.info(box->id).state, State::kReady);
    auto fine = co_await w.exec(box->id, "exit 0");
    EXPECT_TRUE(co_await fine->wait(after(60s)));
    EXPECT_EQ(co_await pause(w, box->id), kFine);
  });
}

TEST(Pause, TheEndOfTheLifetimePausesAndAResumeBeginsANewOne) {
  World w;
  w.run([&]() -> Awaitable<void> {
    CreateSpec spec;
    spec.lifetime = 300ms;
    spec.on_timeout = OnTimeout::kPause;
    auto box = co_await w.create(spec);
    auto hanging = co_await w.exec(box->id, "hang");
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kPaused; }));
      EXPECT_EQ(w.info(box->id).paused->cause, "lifetime");
      const auto before = std::chrono::system_clock::now();
      EXPECT_TRUE((co_await w.manager().resume(w.caller, box->id)).has_value());
      EXPECT_GE(*w.info(box->id).expires_at, before + *spec.lifetime);
    }
    EXPECT_FALSE(hanging->ended());
  });
}

TEST(Pause, IdlenessPausesAndPausedIsNotIdle) {
  World w;
  w.run([&]() -> Awaitable<void> {
    CreateSpec spec;
    spec.idle_timeout = 30ms;
    spec.on_timeout = OnTimeout::kPause;
    auto box = co_await w.create(spec);
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kPaused; }));
    EXPECT_EQ(w.info(box->id).paused->cause, "idle");
    auto done = co_await w.exec(box->id, "exit 0");
    EXPECT_TRUE(co_await done->wait(after(60s)));
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kPaused; }));

    Code paused = Code::kTimeout;
    for (const Millis time : kShortTimes) {
      CreateSpec mortal;
      mortal.idle_timeout = time;
      auto other = co_await w.create(mortal);
      paused = co_await pause(w, other->id);
      if (paused != kFine) continue;
      co_await sleep_for(2 * time);
      EXPECT_EQ(w.info(other->id).state, State::kPaused) << "its idle timeout counted";
      break;
    }
    EXPECT_EQ(paused, kFine);
  });
}

TEST(Pause, TheLifetimeOfAPausedSandboxGoesOn) {
  World w;
  w.run([&]() -> Awaitable<void> {
    Code paused = Code::kTimeout;
    for (const Millis time : kShortTimes) {
      CreateSpec spec;
      spec.lifetime = time;
      auto box = co_await w.create(spec);
      paused = box ? co_await pause(w, box->id) : box.error().code;
      if (paused != kFine) continue;
      EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kEnded; }));
      EXPECT_EQ(w.info(box->id).ended->reason, "lifetime");
      EXPECT_TRUE(co_await eventually([&] { return w.runtime().ids().empty(); }));
      break;
    }
    EXPECT_EQ(paused, kFine);
  });
}

TEST(Pause, OutlivesTheDaemonUntouched) {
  World w;
  std::string id, execution_id;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    execution_id = (co_await w.exec(id, "hang"))->info().id;
    co_await sleep_for(100ms);  // it is recorded by then
    EXPECT_EQ(co_await pause(w, id), kFine);
  });
  const int hellos = w.agent(id)->seen["attach"];
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto found = co_await w.manager().execution(w.caller, id, execution_id);
    EXPECT_TRUE(found.has_value());
    EXPECT_EQ(w.info(id).state, State::kPaused);
    EXPECT_TRUE(stands_still(w, id));
    EXPECT_EQ(w.agent(id)->seen["attach"], hellos) << "its agent was spoken to";
    EXPECT_EQ(w.info(id).running_executions, 1);
    EXPECT_TRUE((co_await (*found)->kill()).has_value());
    EXPECT_EQ((*found)->info().outcome->type, "killed_by_caller");
    EXPECT_EQ(w.info(id).state, State::kReady);
    EXPECT_EQ(co_await pause(w, id), kFine);
  });
  w.runtime().kill(id);
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
    EXPECT_EQ(w.info(id).ended->reason, "host_lost");
  });
}

TEST(Pause, AnExecutionsWatchWaitsForThePauseToEnd) {
  Config config;
  config.patience.exec_end_slack = 50ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    Code paused = Code::kTimeout;
    for (const Millis time : kShortTimes) {
      auto box = co_await w.create();
      ExecSpec spec;
      spec.command = "hang";  // an agent that does not end it at its timeout
      spec.timeout = time;
      auto hanging = co_await w.manager().execute(w.caller, box->id, spec);
      paused = co_await pause(w, box->id);
      if (paused != kFine || !hanging) continue;
      co_await sleep_for(2 * time);
      EXPECT_EQ(w.info(box->id).state, State::kPaused);
      EXPECT_FALSE((*hanging)->ended());
      EXPECT_TRUE((co_await w.manager().resume(w.caller, box->id)).has_value());
      EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).state == State::kEnded; }));
      break;
    }
    EXPECT_EQ(paused, kFine);
  });
}

// Two clients at once, in every order that the loop comes up with.
TEST(Pause, StormOfCallsLeavesNothingStuck) {
  Config config;
  config.freeze_after = 1ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    auto box = co_await w.create();
    int done = 0;
    auto client = [](World& world, std::string id, unsigned seed, int* count) -> Awaitable<void> {
      for (int i = 0; i < 100; ++i) {
        seed = seed * 1664525 + 1013904223;
        const unsigned what = seed >> 28;
        if (what < 6) {
          EXPECT_EQ(co_await pause(world, id), kFine);
        } else if (what < 11) {
          EXPECT_TRUE((co_await world.manager().resume(world.caller, id)).has_value());
        } else {
          auto run = co_await world.exec(id, "exit 0");
          EXPECT_TRUE(co_await run->wait(after(60s)));
        }
        if (seed % 7 == 0) co_await sleep_for(1ms);
      }
      ++*count;
    };
    for (unsigned seed = 1; seed <= 4; ++seed) spawn(w.executor(), "client", client(w, box->id, seed, &done));
    EXPECT_TRUE(co_await eventually([&] { return done == 4; }));
    EXPECT_EQ(co_await pause(w, box->id), kFine);
    EXPECT_TRUE(stands_still(w, box->id));
    EXPECT_TRUE((co_await w.manager().kill(w.caller, box->id)).has_value());
    EXPECT_TRUE(w.runtime().ids().empty());
  });
}

}  // namespace
}  // namespace glovebox::sandbox
