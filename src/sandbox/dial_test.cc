// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::Frame;
using channel::Type;
using channel::testing::eventually;
using channel::testing::Peer;
using channel::testing::u64;
using testing::World;
constexpr auto kConfirmed = SandboxService::Dialling::kConfirmed;
constexpr auto kAtOnce = SandboxService::Dialling::kAtOnce;

// An agent's port: what a script does with the frames of a dialled connection.
using Script = std::function<Awaitable<void>(Peer&, Frame&)>;
testing::FakeAgent::Intercept port(Script script) {
  return [script](Peer& peer, Frame& frame) -> Awaitable<bool> {
    const bool is_dial = frame.type == Type::kRequest && testing::json_text(frame.payload, "op") == "dial";
    const bool is_bytes = frame.type == Type::kDataToAgent || frame.type == Type::kEndToAgent || frame.type == Type::kCancel;
    if (!is_dial && !is_bytes) co_return false;
    co_await script(peer, frame);
    co_return true;
  };
}
Awaitable<void> answer(Peer& peer, Frame& frame, std::string json) { co_await peer.send(frame.channel, Type::kResponse, json); }

Script echo() {
  return [](Peer& peer, Frame& frame) -> Awaitable<void> {
    if (frame.type == Type::kRequest) co_await answer(peer, frame, R"({"ok":true})");
    if (frame.type == Type::kDataToAgent) co_await peer.send(frame.channel, Type::kData, frame.payload);
    if (frame.type == Type::kEndToAgent) co_await peer.send(frame.channel, Type::kEnd, "");
  };
}

Awaitable<std::string> read_all(http::Stream& stream) {
  std::string all;
  char buffer[100];
  while (true) {
    const auto n = co_await stream.read_some(buffer, sizeof buffer);
    if (!n || *n == 0) co_return all;
    all.append(buffer, *n);
  }
}

TEST(Dial, CarriesBytesBothWays) {
  World w;
  w.intercept = port(echo());
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    auto stream = co_await w.manager().dial(w.caller, box->id, 80, kConfirmed);
    EXPECT_TRUE(stream.has_value());
    EXPECT_TRUE((co_await (*stream)->write(std::string(1000, 'x'))).has_value());
    (*stream)->shutdown_write();
    EXPECT_EQ(co_await read_all(**stream), std::string(1000, 'x'));
  });
}

TEST(Dial, NamesThePortThatNobodyListensOn) {
  World w;
  w.intercept = port([](Peer& peer, Frame& frame) -> Awaitable<void> {
    if (frame.type == Type::kRequest) co_await answer(peer, frame, R"({"ok":false,"code":"unavailable","message":"connect: refused"})");
  });
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    const auto stream = co_await w.manager().dial(w.caller, box->id, 8123, kConfirmed);
    EXPECT_EQ(stream.error().code, Code::kPreviewUnreachable);
    EXPECT_EQ(stream.error().details.at("port"), "8123");
    const auto listening = co_await w.manager().is_listening(w.caller, box->id, 8123);
    EXPECT_EQ(listening.value(), false);
  });
}

TEST(Dial, AtOnceTheFirstReadTells) {
  World w;
  w.intercept = port(echo());
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    auto stream = co_await w.manager().dial(w.caller, box->id, 80, kAtOnce);
    EXPECT_TRUE((co_await (*stream)->write("early")).has_value());
    (*stream)->shutdown_write();
    EXPECT_EQ(co_await read_all(**stream), "early");
  });
  w.intercept = port([](Peer& peer, Frame& frame) -> Awaitable<void> {
    if (frame.type == Type::kRequest) co_await answer(peer, frame, R"({"ok":false,"code":"unavailable","message":"connect: refused"})");
  });
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    auto stream = co_await w.manager().dial(w.caller, box->id, 80, kAtOnce);
    EXPECT_TRUE(stream.has_value());
    EXPECT_TRUE((co_await (*stream)->write("early")).has_value());
    char byte;
    EXPECT_EQ((co_await (*stream)->read_some(&byte, 1)).error().code, Code::kPreviewUnreachable);
    stream->reset();
    co_await sleep_for(20ms);
    EXPECT_EQ(w.info(box->id).state, State::kReady);
  });
}

TEST(Dial, IsTheTenantsOwn) {
  World w;
  w.intercept = port(echo());
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    const Caller other{"other", "key", Role::kUser, {}, "req"};
    const auto stream = co_await w.manager().dial(other, box->id, 80, kConfirmed);
    EXPECT_EQ(stream.error().code, Code::kSandboxNotFound);
    EXPECT_EQ(w.manager().get_unchecked(box->id)->tenant, w.caller.tenant);
  });
}

// A server that answers early closes its side while the client still sends: the agent then goes on granting, and tells the reset.
TEST(Dial, WindowsAndAResetAfterTheServersEndAreNoBreach) {
  World w;
  w.intercept = port([](Peer& peer, Frame& frame) -> Awaitable<void> {
    if (frame.type == Type::kRequest) co_await answer(peer, frame, R"({"ok":true})");
    if (frame.type != Type::kDataToAgent) co_return;
    co_await peer.send(frame.channel, Type::kEnd, "");
    co_await peer.send(frame.channel, Type::kWindow, u64(channel::kWindowBytes + 1));
    co_await peer.send(frame.channel, Type::kEnd, R"({"ok":false,"code":"unavailable","message":"reset"})");
  });
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    {
      auto stream = co_await w.manager().dial(w.caller, box->id, 80, kConfirmed);
      EXPECT_TRUE((co_await (*stream)->write("x")).has_value());
      co_await sleep_for(50ms);
      char byte;
      EXPECT_EQ((co_await (*stream)->read_some(&byte, 1)).value_or(1), 0u) << "the reset took back a whole answer";
      EXPECT_FALSE((co_await (*stream)->write("y")).has_value());
    }
    co_await sleep_for(50ms);
    EXPECT_EQ(w.info(box->id).state, State::kReady);
  });
}

TEST(Dial, ClosingEndsARead) {
  World w;
  w.intercept = port(echo());
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    auto stream = co_await w.manager().dial(w.caller, box->id, 80, kConfirmed);
    auto later = [](http::Stream& s) -> Awaitable<void> {
      co_await sleep_for(20ms);
      s.close();
    };
    spawn(w.executor(), "close", later(**stream));
    char byte;
    const auto n = co_await (*stream)->read_some(&byte, 1);
    EXPECT_EQ(n.error().code, Code::kCancelled);
    EXPECT_FALSE((co_await (*stream)->write("x")).has_value());
  });
}

TEST(Dial, AnOpenConnectionIsNoActivityAndItsBytesAre) {
  World w;
  w.intercept = port(echo());
  w.run([&]() -> Awaitable<void> {
    bool is_kept = false;
    // Where the machine stands still for longer than the first time, so does the connection.
    for (const Millis time : {400ms, 4000ms, 20'000ms}) {
      CreateSpec spec;
      spec.idle_timeout = time;
      const auto box = co_await w.create(spec);
      auto stream = co_await w.manager().dial(w.caller, box->id, 80, kConfirmed);
      is_kept = stream.has_value();
      for (int i = 0; i < 8 && is_kept; ++i) {
        co_await sleep_for(time / 4);
        is_kept = (co_await (*stream)->write("x")).has_value();
      }
      if (!is_kept) continue;
      EXPECT_EQ(w.info(box->id).state, State::kReady);
      const bool ended = co_await eventually([&] { return w.info(box->id).state == State::kEnded; });
      EXPECT_TRUE(ended) << "the open connection kept it alive";
      EXPECT_EQ(w.info(box->id).ended->reason, "idle");
      break;
    }
    EXPECT_TRUE(is_kept) << "its bytes are no activity";
  });
}

TEST(Dial, LookingWhetherSomethingListensNeitherWakesNorCounts) {
  Config config;
  config.freeze_after = 20ms;
  World w(config, runtime::Tier::kGvisor);
  w.intercept = port(echo());
  w.run([&]() -> Awaitable<void> {
    const auto box = co_await w.create();
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).frozen; }));
    const auto listening = co_await w.manager().is_listening(w.caller, box->id, 80);
    EXPECT_TRUE(listening.has_value() && !*listening);
    EXPECT_TRUE(w.info(box->id).frozen);
    auto stream = co_await w.manager().dial(w.caller, box->id, 80, kConfirmed);
    EXPECT_FALSE(w.info(box->id).frozen);
    EXPECT_EQ((co_await w.manager().is_listening(w.caller, box->id, 80)).value(), true);
    co_await sleep_for(100ms);
    EXPECT_FALSE(w.info(box->id).frozen) << "frozen under an open connection";
    stream->reset();
    EXPECT_TRUE(co_await eventually([&] { return w.info(box->id).frozen; }));
  });
}

}  // namespace
}  // namespace glovebox::sandbox
