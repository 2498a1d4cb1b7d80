// SPDX-License-Identifier: Apache-2.0
#include "sandbox/execution.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Type;
using channel::testing::eventually;
using channel::testing::frame;
using channel::testing::Peer;
using channel::testing::u64;
using testing::World;

Awaitable<std::string> all_output(ExecutionPtr execution) {
  std::string out;
  uint64_t cursor = 0;
  while (true) {
    auto chunks = co_await execution->read(cursor, 1 << 20);
    EXPECT_TRUE(chunks.has_value()) << (chunks ? "" : chunks.error().message);
    if (!chunks || chunks->empty()) co_return out;
    for (const Chunk& chunk : *chunks) {
      EXPECT_EQ(chunk.cursor, cursor);
      out += chunk.data;
      cursor += chunk.data.size();
    }
  }
}

TEST(Execution, OutcomesAreWhatTheAgentSaid) {
  World w;
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    auto run = [&](std::string command) -> Awaitable<ExecInfo> {
      auto execution = co_await w.exec(id, command);
      EXPECT_TRUE(co_await execution->wait(after(60s)));
      co_return execution->info();
    };
    EXPECT_EQ((co_await run("exit 0")).outcome->exit_code, 0);
    EXPECT_EQ((co_await run("exit 255")).outcome->exit_code, 255);
    auto term = co_await run("signal 15");
    EXPECT_EQ(term.outcome->type, "signalled");
    EXPECT_FALSE(term.outcome->exit_code.has_value());
    auto killed = co_await run("signal 9");
    EXPECT_EQ(killed.outcome->type, "signalled");
    ++w.runtime().oom_kills;
    auto oom = co_await run("signal 9");
    EXPECT_EQ(oom.outcome->type, "oom_killed");
    EXPECT_EQ(oom.outcome->signal, 9);
    killed = co_await run("signal 9");
    EXPECT_EQ(killed.outcome->type, "signalled") << "an older kill was taken for this one's";
    // A kernel of the sandbox's own, of which the host sees nothing.
    oom = co_await run("oom 9");
    EXPECT_EQ(oom.outcome->type, "oom_killed");
    EXPECT_EQ(oom.outcome->signal, 9);
    term = co_await run("oom 15");
    EXPECT_EQ(term.outcome->type, "signalled") << "another process was the victim";
    EXPECT_NE(term.outcome->message.find("memory limit"), std::string::npos);
    EXPECT_TRUE(co_await eventually([&] { return w.agent(id)->executions.empty(); })) << "the agent may forget them";
    EXPECT_EQ(w.info(id).running_executions, 0);
  });
}

TEST(Execution, ARefusalLeavesNoTrace) {
  World w;
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    ExecSpec spec;
    spec.command = "fail command_not_found";
    auto refused = co_await w.manager().execute(w.caller, id, spec);
    EXPECT_EQ(refused.error().code, Code::kCommandNotFound);
    spec.command = "fail unauthenticated";
    refused = co_await w.manager().execute(w.caller, id, spec);
    EXPECT_EQ(refused.error().code, Code::kAgentProtocol);
    EXPECT_TRUE(w.manager().executions(w.caller, id, {}, 10, "")->items.empty());
    EXPECT_EQ(w.info(id).running_executions, 0);
  });
}

TEST(Execution, OneThatIsNotAnsweredEndsKilledAndForgotten) {
  Config config;
  config.patience.exec_start = 50ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    for (int i = 1; i <= 3; ++i) {
      auto stuck = co_await w.manager().execute(w.caller, id, {.command = "never"});
      EXPECT_EQ(stuck.error().code, Code::kTimeout);
      EXPECT_TRUE(co_await eventually([&] { return w.agent(id)->seen["kill"] == i && w.agent(id)->seen["forget"] == i; }));
    }
    EXPECT_EQ(w.info(id).running_executions, 0);
    EXPECT_EQ(w.info(id).state, State::kReady);
  });
}

TEST(Execution, SmallOutputStaysReadableAfterItsEnd) {
  World w;
  std::string id, execution_id;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    auto execution = co_await w.exec(id, "print some words");
    execution_id = execution->info().id;
    EXPECT_TRUE(co_await execution->wait(after(60s)));
    EXPECT_EQ(co_await all_output(execution), "some words");
    EXPECT_FALSE(execution->info().truncated());
    EXPECT_TRUE(co_await eventually([&] { return w.agent(id)->executions.empty(); }));
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto execution = co_await w.manager().execution(w.caller, id, execution_id);
    EXPECT_EQ(co_await all_output(*execution), "some words");
  });
}

TEST(Execution, OutputBeyondTheCapIsCountedAndTold) {
  constexpr uint64_t kWritten = 3'000'000, kCap = 1'000'000;
  Config config;
  config.output_file_bytes = kCap;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    auto execution = co_await w.exec(id, "flood " + std::to_string(kWritten));
    EXPECT_TRUE(co_await execution->wait(after(60s)));
    const ExecInfo& info = execution->info();
    EXPECT_EQ(info.stdout_bytes, kWritten);
    EXPECT_EQ(info.kept_bytes, kCap);
    EXPECT_EQ(info.dropped_stdout, kWritten - kCap);
    EXPECT_EQ(info.dropped_stderr, 0u);
    EXPECT_TRUE(info.truncated());
    EXPECT_EQ((co_await all_output(execution)).size(), kCap);
  });
}

TEST(Execution, GoesOnAfterARestartWithoutAGapOrARepetition) {
  World w;
  std::string id, execution_id;
  bool is_deaf = false;
  // ACKs that a dead daemon never sent: the agent still has what is in the file already.
  w.intercept = [&](Peer&, channel::Frame& f) -> Awaitable<bool> { co_return f.type == Type::kAck && is_deaf; };
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    is_deaf = true;
    auto execution = co_await w.exec(id, "flood 700000");
    execution_id = execution->info().id;
    EXPECT_TRUE(co_await eventually([&] { return execution->info().stdout_bytes >= channel::kWindowBytes; }));
    const std::string file = w.config().data_dir + "/spool/" + id + "/" + execution_id + ".out";
    EXPECT_TRUE(co_await eventually([&] {
      struct stat st;
      return ::stat(file.c_str(), &st) == 0 && st.st_size >= static_cast<off_t>(channel::kWindowBytes);
    })) << "written";
  });
  is_deaf = false;
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto execution = co_await w.manager().execution(w.caller, id, execution_id);
    EXPECT_TRUE(co_await (*execution)->wait(after(60s)));
    EXPECT_EQ((*execution)->info().stdout_bytes, 700'000u);
    EXPECT_EQ((*execution)->info().dropped_stdout, 0u);
    const std::string out = co_await all_output(*execution);
    EXPECT_EQ(out, std::string(700'000, 'f'));
    EXPECT_EQ((*execution)->info().outcome->type, "exited");
    EXPECT_EQ(w.info(id).state, State::kReady);
  });
}

TEST(Execution, AGapAfterARestartIsToldAsDropped) {
  Config config;
  World w(config);
  std::string id, execution_id;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    auto execution = co_await w.exec(id, "hang");
    execution_id = execution->info().id;
    co_await sleep_for(100ms);
  });
  // Bytes 0 to 99 went to a daemon that lost them.
  auto& running = w.agent(id)->executions.begin()->second;
  running.start = running.sent = 100;
  running.out = "after";
  running.outcome = R"("outcome":"exited","code":0)";
  w.restart();
  w.run([&]() -> Awaitable<void> {
    auto execution = co_await w.manager().execution(w.caller, id, execution_id);
    EXPECT_TRUE(co_await (*execution)->wait(after(60s)));
    EXPECT_EQ((*execution)->info().stdout_bytes, 105u);
    EXPECT_EQ((*execution)->info().dropped_stdout, 105u);
    EXPECT_EQ(co_await all_output(*execution), "");
    EXPECT_EQ(w.info(id).state, State::kReady);
  });
}

TEST(Execution, ItsTimeoutHoldsEvenWhenTheAgentForgetsIt) {
  Config config;
  config.patience.exec_end_slack = 50ms;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    ExecSpec spec;
    spec.command = "hang";  // the fake agent knows no timeouts
    spec.timeout = 50ms;
    auto execution = co_await w.manager().execute(w.caller, id, spec);
    EXPECT_TRUE(co_await (*execution)->wait(after(60s)));
    EXPECT_EQ((*execution)->info().outcome->type, "sandbox_ended");
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
    EXPECT_EQ(w.info(id).ended->reason, "crashed");
  });
}

TEST(Execution, StdinIsHeldToItsWindow) {
  World w;
  std::optional<uint32_t> channel;
  uint64_t got = 0;
  w.intercept = [&](Peer&, channel::Frame& f) -> Awaitable<bool> {
    if (f.type != Type::kStdin) co_return false;
    channel = f.channel;
    got += f.payload.size();
    co_return true;
  };
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    ExecSpec spec;
    spec.command = "hang";
    spec.keep_stdin = true;
    auto execution = co_await w.manager().execute(w.caller, id, spec);
    bool is_written = false;
    auto write = [](ExecutionPtr e, bool* done) -> Awaitable<void> {
      EXPECT_TRUE((co_await e->write_stdin(std::string(2 * channel::kWindowBytes, 'i'))).has_value());
      *done = true;
    };
    spawn(w.executor(), "write", write(*execution, &is_written));
    EXPECT_TRUE(co_await eventually([&] { return got == channel::kWindowBytes; }));
    co_await sleep_for(20ms);
    EXPECT_EQ(got, channel::kWindowBytes);
    EXPECT_FALSE(is_written);
    co_await w.runtime().box(id)->peer.send(*channel, Type::kStdinAck, u64(channel::kWindowBytes));
    EXPECT_TRUE(co_await eventually([&] { return is_written && got == 2 * channel::kWindowBytes; }));
  });
}

TEST(Execution, OldOnesAreForgottenWithTheirFiles) {
  Config config;
  config.kept_executions = 3;
  config.output_memory_bytes = 10;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    auto hanging = co_await w.exec(id, "hang");
    std::vector<std::string> ids;
    for (int i = 0; i < 6; ++i) {
      auto execution = co_await w.exec(id, "flood 1000");
      EXPECT_TRUE(co_await execution->wait(after(60s)));
      EXPECT_TRUE(co_await eventually([&] { return w.agent(id)->executions.size() == 1; }));
      ids.push_back(execution->info().id);
    }
    const auto kept = w.manager().executions(w.caller, id, {}, 100, "")->items;
    EXPECT_EQ(kept.size(), 3u);
    EXPECT_EQ(kept.front().id, ids.back());
    EXPECT_EQ(kept.back().id, hanging->info().id) << "one that runs is never forgotten";
    EXPECT_EQ((co_await w.manager().execution(w.caller, id, ids.front())).error().code, Code::kExecutionNotFound);
    const std::string spool = w.config().data_dir + "/spool/" + id + "/";
    EXPECT_TRUE(co_await eventually([&] { return ::access((spool + ids.front() + ".out").c_str(), F_OK) != 0; }));
    EXPECT_EQ(::access((spool + ids.back() + ".out").c_str(), F_OK), 0);
  });
}

// Keys of idempotency: a call that is repeated starts nothing.
ExecSpec keyed(std::string command, std::string key = "k", std::string request = "r") {
  ExecSpec spec;
  spec.command = std::move(command);
  spec.idempotency_key = std::move(key);
  spec.request = std::move(request);
  spec.detached = true;
  return spec;
}

TEST(ExecuteOnce, TheSameCallIsTheSameExecution) {
  World w;
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    const auto first = co_await w.manager().execute_once(w.caller, id, keyed("hang"));
    EXPECT_FALSE(first->replayed);
    const auto again = co_await w.manager().execute_once(w.caller, id, keyed("hang"));
    EXPECT_TRUE(again->replayed);
    EXPECT_EQ(again->execution->info().id, first->execution->info().id);
    const auto other = co_await w.manager().execute_once(w.caller, id, keyed("hang", "k", "another"));
    EXPECT_EQ(other.error().code, Code::kConflict);
    EXPECT_EQ(other.error().details.at("execution"), first->execution->info().id);
    EXPECT_FALSE((co_await w.manager().execute_once(w.caller, id, keyed("hang", "k2")))->replayed);
    for (int i = 0; i < 2; ++i) EXPECT_FALSE((co_await w.manager().execute_once(w.caller, id, keyed("exit 0", "")))->replayed);
    EXPECT_EQ(w.agent(id)->seen["exec"], 4);
    const std::string second = (co_await w.create())->id;
    EXPECT_FALSE((co_await w.manager().execute_once(w.caller, second, keyed("hang")))->replayed) << "a key is of its sandbox";
  });
}

TEST(ExecuteOnce, CallsAtTheSameTimeStartOne) {
  World w;
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    std::set<std::string> ids;
    int answered = 0, replayed = 0;
    auto call = [&]() -> Awaitable<void> {
      const auto started = co_await w.manager().execute_once(w.caller, id, keyed("hang"));
      ids.insert(started->execution->info().id);
      replayed += started->replayed ? 1 : 0;
      ++answered;
    };
    for (int i = 0; i < 5; ++i) spawn(w.executor(), "call", call());
    EXPECT_TRUE(co_await eventually([&] { return answered == 5; }));
    EXPECT_EQ(ids.size(), 1u);
    EXPECT_EQ(replayed, 4);
    EXPECT_EQ(w.agent(id)->seen["exec"], 1);
  });
}

TEST(ExecuteOnce, ARefusalLeavesTheKeyFree) {
  World w;
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ((co_await w.manager().execute_once(w.caller, id, keyed("fail command_not_found"))).error().code, Code::kCommandNotFound);
    }
    EXPECT_EQ(w.agent(id)->seen["exec"], 2);
    EXPECT_FALSE((co_await w.manager().execute_once(w.caller, id, keyed("hang", "k", "another")))->replayed);
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    const auto boxes = w.manager().list(w.caller, {});
    EXPECT_EQ(w.manager().executions(w.caller, boxes->items.at(0).id, {}, 10, "")->items.size(), 1u) << "what was refused left a record";
    co_return;
  });
}

TEST(ExecuteOnce, HoldsAcrossARestartAlsoForOneWhoseStartWasNotSeen) {
  World w;
  std::string id, first;
  w.run([&]() -> Awaitable<void> {
    id = (co_await w.create())->id;
    first = (co_await w.manager().execute_once(w.caller, id, keyed("hang")))->execution->info().id;
    auto call = [](World& world, std::string box) -> Awaitable<void> {
      (void)co_await world.manager().execute_once(world.caller, box, keyed("never", "unseen"));
    };
    spawn(w.executor(), "call", call(w, id));
    EXPECT_TRUE(co_await eventually([&] { return w.agent(id)->seen["exec"] == 2; }));
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    const auto again = co_await w.manager().execute_once(w.caller, id, keyed("hang"));
    EXPECT_TRUE(again->replayed);
    EXPECT_EQ(again->execution->info().id, first);
    const auto unseen = co_await w.manager().execute_once(w.caller, id, keyed("never", "unseen"));
    EXPECT_TRUE(unseen->replayed);
    EXPECT_TRUE(co_await unseen->execution->wait(after(60s)));
    EXPECT_EQ(unseen->execution->info().outcome->type, "interrupted");
    EXPECT_EQ((co_await w.manager().execute_once(w.caller, id, keyed("hang", "k", "another"))).error().code, Code::kConflict);
  });
}

// What an agent sends for an execution (its channel is given) and no honest one would. Whatever it is, the caller gets an answer,
// the sandbox ends, and nothing is counted twice.
struct Breach {
  const char* name;
  std::function<std::string(uint32_t)> bytes;
  bool started = true;  // STARTED goes before
};
class ExecutionBreach : public ::testing::TestWithParam<Breach> {};

std::string output(uint32_t c, uint64_t offset, const std::string& data, uint8_t stream = 1) {
  return frame(c, Type::kOutput, channel::stream_header(stream, offset) + data);
}
std::string exited(uint32_t c, const std::string& rest) { return frame(c, Type::kExited, R"({"outcome":"exited",)" + rest + "}"); }
constexpr const char* kCode0 = R"("code":0,"stdout_bytes":0,"stderr_bytes":0)";

TEST_P(ExecutionBreach, EndsTheSandboxAndTheCall) {
  Config config;
  config.output_memory_bytes = 16 << 20;  // nothing is acknowledged early
  config.patience.lost_note = 50ms;
  World w(config);
  w.intercept = [](Peer& peer, channel::Frame& f) -> Awaitable<bool> {
    if (f.type != Type::kExec) co_return false;
    const std::string started = GetParam().started ? frame(f.channel, Type::kStarted, R"({"pid":3})") : "";
    co_await peer.write(started + GetParam().bytes(f.channel));
    co_return true;
  };
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    const std::string other = (co_await w.create())->id;
    auto execution = co_await w.manager().execute(w.caller, id, {.command = "x"});
    if (execution) {
      EXPECT_TRUE(co_await (*execution)->wait(after(60s)));
    } else {
      EXPECT_EQ(execution.error().code, Code::kAgentProtocol);
    }
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
    EXPECT_EQ(w.info(id).ended->reason, "crashed");
    EXPECT_EQ(w.info(id).running_executions, 0);
    EXPECT_EQ(w.info(other).state, State::kReady);
  });
}

std::string beyond_window(uint32_t c) {
  std::string out;
  for (uint64_t at = 0; at < 1 << 20; at += 60'000) out += output(c, at, std::string(60'000, 'x'));
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ExecutionBreach,
    ::testing::Values(
        Breach{"ExitedBeforeStarted", [](uint32_t c) { return exited(c, kCode0); }, false},
        Breach{"GoneBeforeStarted", [](uint32_t c) { return frame(c, Type::kGone, ""); }, false},
        Breach{"OutputBeforeStarted", [](uint32_t c) { return output(c, 0, "x"); }, false},
        Breach{"StartedWithoutPid", [](uint32_t c) { return frame(c, Type::kStarted, "{}"); }, false},
        Breach{"StartedWithNegativePid", [](uint32_t c) { return frame(c, Type::kStarted, R"({"pid":-5})"); }, false},
        Breach{"StartedTwice", [](uint32_t c) { return frame(c, Type::kStarted, R"({"pid":3})"); }},
        Breach{"FailedAfterStarted", [](uint32_t c) { return frame(c, Type::kFailed, R"({"code":"io"})"); }},
        Breach{"GoneBeforeExited", [](uint32_t c) { return frame(c, Type::kGone, ""); }},
        Breach{"ExitedTwice", [](uint32_t c) { return exited(c, kCode0) + exited(c, kCode0); }},
        Breach{"OutputAfterExited", [](uint32_t c) { return exited(c, kCode0) + output(c, 0, "x"); }},
        Breach{"ShortOutput", [](uint32_t c) { return frame(c, Type::kOutput, "x"); }},
        Breach{"EmptyOutput", [](uint32_t c) { return output(c, 0, ""); }},
        Breach{"OutputOfStream3", [](uint32_t c) { return output(c, 0, "x", 3); }},
        Breach{"OutputOfStream0", [](uint32_t c) { return output(c, 0, "x", 0); }},
        Breach{"OutputWithAGap", [](uint32_t c) { return output(c, 5, "x"); }},
        Breach{"OutputFarAway", [](uint32_t c) { return output(c, UINT64_MAX, "x"); }},
        Breach{"OutputTwice", [](uint32_t c) { return output(c, 0, "xy") + output(c, 0, "xy"); }},
        Breach{"OutputBeyondTheWindow", beyond_window}, Breach{"StdinAckOfNothing", [](uint32_t c) { return frame(c, Type::kStdinAck, u64(1)); }},
        Breach{"StdinAckOfZero", [](uint32_t c) { return frame(c, Type::kStdinAck, u64(0)); }},
        Breach{"ShortStdinAck", [](uint32_t c) { return frame(c, Type::kStdinAck, "1"); }},
        Breach{"ExitCode256", [](uint32_t c) { return exited(c, R"("code":256,"stdout_bytes":0,"stderr_bytes":0)"); }},
        Breach{"ExitCodeNegative", [](uint32_t c) { return exited(c, R"("code":-1,"stdout_bytes":0,"stderr_bytes":0)"); }},
        Breach{"NoExitCode", [](uint32_t c) { return exited(c, R"("stdout_bytes":0,"stderr_bytes":0)"); }},
        Breach{"CountsOfUnsentBytes", [](uint32_t c) { return exited(c, R"("code":0,"stdout_bytes":9,"stderr_bytes":0)"); }},
        Breach{"CountsThatOverflow", [](uint32_t c) {
                 return exited(c, R"("code":0,"stdout_bytes":18446744073709551615,"stderr_bytes":18446744073709551615)");
               }},
        Breach{"NegativeCounts", [](uint32_t c) { return exited(c, R"("code":0,"stdout_bytes":-1,"stderr_bytes":0)"); }},
        Breach{"OutcomeOfOurs", [](uint32_t c) { return frame(c, Type::kExited, R"({"outcome":"sandbox_ended","stdout_bytes":0,"stderr_bytes":0})"); }},
        Breach{"Signal65", [](uint32_t c) { return frame(c, Type::kExited, R"({"outcome":"signalled","signal":65,"stdout_bytes":0,"stderr_bytes":0})"); }},
        Breach{"ExitedDepthBomb", [](uint32_t c) { return frame(c, Type::kExited, std::string(60'000, '[')); }},
        Breach{"Response", [](uint32_t c) { return frame(c, Type::kResponse, "{}"); }},
        Breach{"Data", [](uint32_t c) { return frame(c, Type::kData, "x"); }}),
    [](const auto& param) { return param.param.name; });

// More than a drained execution may still have under way.
TEST(Execution, AnAgentThatDoesNotStopWhenToldLosesItsSandbox) {
  Config config;
  config.output_file_bytes = 1000;
  config.patience.lost_note = 50ms;
  World w(config);
  w.intercept = [](Peer& peer, channel::Frame& f) -> Awaitable<bool> {
    if (f.type != Type::kExec) co_return false;
    co_await peer.write(frame(f.channel, Type::kStarted, R"({"pid":3})"));
    for (uint64_t at = 0; at < (8u << 20); at += 60'000) {
      if (!co_await peer.write(output(f.channel, at, std::string(60'000, 'x')))) break;
      co_await sleep_for(0ms);
    }
    co_return true;
  };
  w.run([&]() -> Awaitable<void> {
    const std::string id = (co_await w.create())->id;
    auto execution = co_await w.manager().execute(w.caller, id, {.command = "x"});
    EXPECT_TRUE(co_await (*execution)->wait(after(60s)));
    EXPECT_EQ((*execution)->info().kept_bytes, 1000u);
    EXPECT_LT((*execution)->info().stdout_bytes, 2u << 20);
    EXPECT_TRUE(co_await eventually([&] { return w.info(id).state == State::kEnded; }));
  });
}

}  // namespace
}  // namespace glovebox::sandbox
