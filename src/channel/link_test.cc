// SPDX-License-Identifier: Apache-2.0
#include "channel/link.h"

#include <gtest/gtest.h>

#include "channel/json_shape.h"
#include "channel/testing/peer.h"

namespace glovebox::channel {
namespace {
using namespace std::chrono_literals;
using testing::frame;
using testing::Peer;
using testing::TestLoop;

struct Listener : Receiver {
  void on_frame(Frame& got) override { frames.push_back(got); }
  void on_lost(const Error& error) override { lost = error; }
  std::vector<Frame> frames;
  std::optional<Error> lost;
};

struct Fixture {
  std::shared_ptr<Link> connect() {
    auto [to, from] = peer.take_daemon_ends();
    return Link::create(loop.executor(), std::move(to), std::move(from), [this](const Error& error) {
      ++lost_calls;
      lost = error;
    });
  }
  // Runs `task` on a link that has shaken hands.
  void with_link(std::function<Awaitable<void>(std::shared_ptr<Link>)> task) {
    auto whole = [](Fixture& f, std::function<Awaitable<void>(std::shared_ptr<Link>)> inner) -> Awaitable<void> {
      auto link = f.connect();
      auto answer = [](Peer& p) -> Awaitable<void> { EXPECT_TRUE(co_await p.shake_hands()); };
      spawn(f.loop.executor(), "peer", answer(f.peer));
      auto hello = co_await link->hello("{}", after(60s));
      EXPECT_TRUE(hello.has_value()) << (hello ? "" : hello.error().message);
      co_await inner(link);
    };
    loop.run(whole(*this, std::move(task)));
  }

  TestLoop loop;
  Peer peer;
  int lost_calls = 0;
  std::optional<Error> lost;
};

TEST(Link, DiscardsEverythingBeforeItsOwnNonce) {
  Fixture f;
  auto task = [](Fixture& fix) -> Awaitable<void> {
    auto link = fix.connect();
    auto answer = [](Peer& p) -> Awaitable<void> {
      const auto hello = co_await p.next();
      // Another connection's mark, half a frame, and one that would be a breach of the protocol.
      co_await p.write(sync_mark(std::string(16, 'x')) + frame(7, Type::kOutput, "old") + std::string(40, '\xFF'));
      co_await p.write(testing::hello_answer(hello->payload, "[]"));
    };
    spawn(fix.loop.executor(), "peer", answer(fix.peer));
    auto hello = co_await link->hello("{}", after(60s));
    EXPECT_TRUE(hello.has_value());
    EXPECT_FALSE(link->is_lost());
  };
  f.loop.run(task(f));
}

TEST(Link, HelloEndsAtItsDeadlineWhenTheAgentOnlyMakesNoise) {
  Fixture f;
  auto task = [](Fixture& fix) -> Awaitable<void> {
    auto link = fix.connect();
    auto noise = [](Peer& p) -> Awaitable<void> {
      while (co_await p.write(std::string(60000, '\xF0'))) co_await sleep_for(1ms);
    };
    spawn(fix.loop.executor(), "peer", noise(fix.peer));
    auto hello = co_await link->hello("{}", after(200ms));
    EXPECT_EQ(hello.error().code, Code::kTimeout);
    link->drop(Error{});
  };
  f.loop.run(task(f));
}

TEST(Link, HelloThatDoesNotFitIsRefused) {
  Fixture f;
  auto task = [](Fixture& fix) -> Awaitable<void> {
    auto link = fix.connect();
    auto hello = co_await link->hello("{\"env\":\"" + std::string(kMaxMessageToAgent, 'x') + "\"}", after(60s));
    EXPECT_EQ(hello.error().code, Code::kPayloadTooLarge);
  };
  f.loop.run(task(f));
}

struct Breach {
  const char* name;
  std::string bytes;
};
class LinkBreach : public ::testing::TestWithParam<Breach> {};

TEST_P(LinkBreach, EndsTheLinkAndTellsEverybodyOnce) {
  Fixture f;
  f.with_link([&](std::shared_ptr<Link> link) -> Awaitable<void> {
    Listener listener;
    EXPECT_EQ(link->open(&listener), 1u);
    co_await f.peer.write(GetParam().bytes);
    const bool is_lost = co_await testing::eventually([&] { return f.lost_calls > 0; });
    EXPECT_TRUE(is_lost);
    EXPECT_EQ(f.lost_calls, 1);
    EXPECT_EQ(f.lost.value_or(Error{}).code, Code::kAgentProtocol);
    EXPECT_EQ(listener.lost.value_or(Error{}).code, Code::kAgentProtocol);
    link->send(1, Type::kPing, "");  // harmless on a lost link
  });
}

std::string header_only(uint32_t length) {
  std::string out(kHeaderBytes, '\0');
  put_header(out.data(), Header{length, 1, Type::kOutput, 0});
  return out;
}
std::string many_parts(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) append_frame(out, static_cast<uint32_t>(i), Type::kOutput, "", kFlagMore);
  return out;
}
std::string many_frames(uint32_t channel, Type type, std::string_view payload, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) append_frame(out, channel, type, payload);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Cases, LinkBreach,
                         ::testing::Values(Breach{"GiantLength", header_only(kMaxPayloadFromAgent + 1)},
                                           Breach{"LargestLength", header_only(UINT32_MAX)},
                                           Breach{"PartsOnManyChannels", many_parts(40000)},
                                           Breach{"UnopenedChannel", frame(2, Type::kOutput, "x")},
                                           Breach{"LargestChannel", frame(UINT32_MAX, Type::kGone, "")},
                                           Breach{"PongWithoutPing", frame(0, Type::kPong, "")},
                                           Breach{"SecondHelloOk", frame(0, Type::kHelloOk, "{}")},
                                           Breach{"OutputOnChannelZero", frame(0, Type::kOutput, "")}),
                         [](const auto& param) { return param.param.name; });

TEST(Link, FramesUnderWayOnAClosedChannelAreIgnoredUpToTheirAllowance) {
  Fixture f;
  f.with_link([&](std::shared_ptr<Link> link) -> Awaitable<void> {
    Listener cancelled, open;
    const uint32_t channel = link->open(&cancelled);
    const uint32_t other = link->open(&open);
    link->close(channel, 100'000);
    co_await f.peer.write(many_frames(channel, Type::kData, std::string(10'000, 'x'), 9) + frame(other, Type::kData, "y"));
    EXPECT_TRUE(co_await testing::eventually([&] { return open.frames.size() == 1; }));
    EXPECT_TRUE(cancelled.frames.empty());
    EXPECT_FALSE(link->is_lost());
    co_await f.peer.write(many_frames(channel, Type::kData, std::string(10'000, 'x'), 2));
    EXPECT_TRUE(co_await testing::eventually([&] { return link->is_lost(); }));
    EXPECT_EQ(f.lost.value_or(Error{}).code, Code::kAgentProtocol);
    link->close(other);
  });
}

TEST(Link, APingIsAnsweredOnce) {
  Fixture f;
  f.with_link([&](std::shared_ptr<Link> link) -> Awaitable<void> {
    const auto before = link->last_heard();
    link->ping();
    const auto ping = co_await f.peer.next_of(Type::kPing);
    EXPECT_TRUE(ping.has_value());
    co_await f.peer.send(0, Type::kPong, ping->payload);
    EXPECT_TRUE(co_await testing::eventually([&] { return link->last_heard() > before; }));
    EXPECT_FALSE(link->is_lost());
    co_await f.peer.send(0, Type::kPong, ping->payload);
    EXPECT_TRUE(co_await testing::eventually([&] { return link->is_lost(); }));
  });
}

TEST(Link, AnAgentThatOnlyClosesItsInputIsNoticed) {
  Fixture f;
  f.with_link([&](std::shared_ptr<Link> link) -> Awaitable<void> {
    f.peer.close_input();
    Listener listener;
    link->send(link->open(&listener), Type::kExec, "{}");
    EXPECT_TRUE(co_await testing::eventually([&] { return link->is_lost(); }));
    EXPECT_EQ(listener.lost.value_or(Error{}).code, Code::kSandboxEnded);
  });
}

TEST(Link, WhatAnAgentDoesNotReadIsBounded) {
  Fixture f;
  f.with_link([&](std::shared_ptr<Link> link) -> Awaitable<void> {
    auto waited = co_await link->wait_room(after(60s));
    EXPECT_TRUE(waited.has_value());
    for (int i = 0; i < 3; ++i) link->send(1, Type::kExec, std::string(1 << 20, 'x'));
    waited = co_await link->wait_room(after(50ms));
    EXPECT_EQ(waited.error().code, Code::kTimeout);
    for (int i = 0; i < 20; ++i) link->send(1, Type::kExec, std::string(1 << 20, 'x'));
    EXPECT_TRUE(co_await testing::eventually([&] { return link->is_lost(); }));
    EXPECT_EQ(f.lost.value_or(Error{}).code, Code::kAgentProtocol);
    waited = co_await link->wait_room(after(60s));
    EXPECT_EQ(waited.error().code, Code::kAgentProtocol);
  });
}

TEST(Link, ALongMessageArrivesWholeThoughThePipeIsFull) {
  Fixture f;
  f.with_link([&](std::shared_ptr<Link> link) -> Awaitable<void> {
    const std::string message(900'000, 'm');
    link->send(5, Type::kExec, message);
    link->send(6, Type::kForget, "");
    const auto first = co_await f.peer.next();
    const auto second = co_await f.peer.next();
    EXPECT_EQ(first.value_or(Frame{}).payload, message);
    EXPECT_EQ(second.value_or(Frame{}).channel, 6u);
  });
}

TEST(Link, GoesWithItsLastUser) {
  Fixture f;
  auto task = [](Fixture& fix) -> Awaitable<void> {
    const int before = live_tasks();
    auto link = fix.connect();
    link->send(1, Type::kExec, std::string(1 << 20, 'x'));  // a writer waits, too
    std::weak_ptr<Link> weak = link;
    link.reset();
    EXPECT_TRUE(weak.expired());
    // The reader and the writer end at once; only the stall watch sleeps on.
    EXPECT_TRUE(co_await testing::eventually([&] { return live_tasks() <= before + 1; }));
  };
  f.loop.run(task(f));
}

TEST(ErrorFromAgent, TakesOnlyCodesThatAreTheAgents) {
  EXPECT_EQ(error_from_agent(R"({"code":"file_not_found","message":"x"})").code, Code::kFileNotFound);
  for (const char* text : {R"({"code":"unauthenticated"})", R"({"code":"sandbox_not_found"})", R"({"code":"rate_limited"})",
                           R"({"code":7})", R"({})", "[]", "", "{\"code\":\"io\"", R"({"message":"x"})"}) {
    EXPECT_EQ(error_from_agent(text).code, Code::kAgentProtocol) << text;
  }
  EXPECT_LE(error_from_agent(R"({"code":"io","message":")" + std::string(1 << 20, 'm') + "\"}").message.size(), 4096u);
}

TEST(JsonShape, RefusesWhatIsCheapToSendAndDearToParse) {
  const auto refused = [](const std::string& text) { return !check_json_shape(text).has_value(); };
  EXPECT_TRUE(refused(std::string(17, '[')));
  EXPECT_TRUE(refused(std::string(4 << 20, '{')));
  std::string zeros = "[0";
  for (int i = 0; i < 500'000; ++i) zeros += ",0";
  EXPECT_TRUE(refused(zeros + "]"));
  std::string names = "{\"0\":0";
  for (int i = 1; i < 2000; ++i) names += ",\"" + std::to_string(i) + "\":0";
  EXPECT_TRUE(refused(names + "}"));
  EXPECT_TRUE(check_json_shape(R"({"a":[{},{},"[[[[[[[[[[[[[[[[[[[[[\"[["],"b":"\\"})"));
  EXPECT_TRUE(check_json_shape("\"" + std::string(1000, ',') + "\""));
  EXPECT_TRUE(check_json_shape("]]]]}}}\"\\"));  // not JSON, but cheap
}

TEST(Link, WritesNothingWhileItHoldsStill) {
  Fixture f;
  f.with_link([&f](std::shared_ptr<Link> link) -> Awaitable<void> {
    auto agent = [](Peer& peer) -> Awaitable<void> {
      co_await peer.next_of(Type::kPrepare);
      co_await peer.send(0, Type::kPrepared, {});
    };
    spawn(f.loop.executor(), "agent", agent(f.peer));
    EXPECT_TRUE(co_await link->hold_still(after(60s)));
    Listener listener;
    const uint32_t channel = link->open(&listener);
    link->send(channel, Type::kExec, "{}");
    EXPECT_FALSE(co_await f.peer.next(50ms)) << "nothing of it may be in the pipe";
    auto proceed = [](Peer& peer) -> Awaitable<void> {
      const auto first = co_await peer.next();
      EXPECT_EQ(static_cast<int>(first->type), static_cast<int>(Type::kProceed));
      co_await peer.send(0, Type::kProceeded, testing::u64(1234));
    };
    spawn(f.loop.executor(), "agent", proceed(f.peer));
    const auto stall = co_await link->go_on(after(60s));
    EXPECT_EQ(stall->count(), 1234);
    EXPECT_TRUE(co_await f.peer.next_of(Type::kExec));
    link->close(channel);
  });
}

TEST(Link, AnAgentThatWasNotAskedMayNotSayThatItHoldsStill) {
  Fixture f;
  f.with_link([&f](std::shared_ptr<Link>) -> Awaitable<void> {
    co_await f.peer.send(0, Type::kPrepared, {});
    EXPECT_TRUE(co_await testing::eventually([&] { return f.lost_calls == 1; }));
    EXPECT_EQ(f.lost->code, Code::kAgentProtocol);
  });
}

}  // namespace
}  // namespace glovebox::channel
