// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "channel/link.h"
#include "channel/testing/peer.h"

namespace glovebox::channel {
namespace {
using namespace std::chrono_literals;
using testing::frame;
using testing::Peer;
using testing::TestLoop;
using testing::u64;

constexpr const char* kOk = R"({"ok":true})";

struct Fixture {
  // Runs `task` beside `agent`, which gets the peer after the handshake.
  void run(std::function<Awaitable<void>(Peer&)> agent, std::function<Awaitable<void>(std::shared_ptr<Link>)> task) {
    using Task = std::function<Awaitable<void>(std::shared_ptr<Link>)>;
    using Agent = std::function<Awaitable<void>(Peer&)>;
    auto whole = [](Fixture& f, Agent as_agent, Task inner) -> Awaitable<void> {
      auto [to, from] = f.peer.take_daemon_ends();
      auto link = Link::create(f.loop.executor(), std::move(to), std::move(from), [](const Error&) {});
      auto act = [](Peer& p, Agent script) -> Awaitable<void> {
        EXPECT_TRUE(co_await p.shake_hands());
        co_await script(p);
      };
      spawn(f.loop.executor(), "peer", act(f.peer, std::move(as_agent)));
      EXPECT_TRUE((co_await link->hello("{}", after(60s))).has_value());
      co_await inner(link);
    };
    loop.run(whole(*this, std::move(agent), std::move(task)));
  }

  TestLoop loop;
  Peer peer;
};

Awaitable<void> silent(Peer&) { co_return; }

TEST(Transfer, RequestGivesTheAnswerAndIsNotCancelled) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        const auto request = co_await p.next_of(Type::kRequest);
        co_await p.send(request->channel, Type::kResponse, R"({"ok":true,"x":1})");
      },
      [&](std::shared_ptr<Link> link) -> Awaitable<void> {
        auto answer = co_await link->request("{}", after(60s));
        EXPECT_EQ(answer.value_or(""), R"({"ok":true,"x":1})");
        const auto next = co_await f.peer.next(20ms);
        EXPECT_FALSE(next.has_value()) << "a finished request was cancelled";
      });
}

TEST(Transfer, RequestEndsAtItsDeadlineAndIsCancelled) {
  Fixture f;
  f.run(silent, [&](std::shared_ptr<Link> link) -> Awaitable<void> {
    auto answer = co_await link->request("{}", after(50ms));
    EXPECT_EQ(answer.error().code, Code::kTimeout);
    const auto cancel = co_await f.peer.next_of(Type::kCancel);
    EXPECT_TRUE(cancel.has_value());
    EXPECT_FALSE(link->is_lost());
  });
}

TEST(Transfer, RequestThatDoesNotFitIsRefused) {
  Fixture f;
  f.run(silent, [](std::shared_ptr<Link> link) -> Awaitable<void> {
    auto answer = co_await link->request(std::string(kMaxMessageToAgent + 1, 'x'), after(60s));
    EXPECT_EQ(answer.error().code, Code::kPayloadTooLarge);
    EXPECT_FALSE(link->is_lost());
  });
}

TEST(Transfer, RequestEndsWhenTheLinkIsLost) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        co_await p.next_of(Type::kRequest);
        p.close_output();
      },
      [](std::shared_ptr<Link> link) -> Awaitable<void> {
        auto answer = co_await link->request("{}", after(60s));
        EXPECT_EQ(answer.error().code, Code::kSandboxEnded);
        answer = co_await link->request("{}", after(60s));
        EXPECT_EQ(answer.error().code, Code::kSandboxEnded) << "a lost link answers at once";
      });
}

TEST(Transfer, ReadsToTheEndAndGrantsAsItConsumes) {
  Fixture f;
  constexpr size_t kTotal = 3 << 20;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        const auto request = co_await p.next_of(Type::kRequest);
        const uint32_t channel = request->channel;
        co_await p.send(channel, Type::kResponse, kOk);
        uint64_t sent = 0, allowed = kWindowBytes;
        while (sent < kTotal) {
          while (sent >= allowed) {
            const auto window = co_await p.next_of(Type::kWindowToAgent);
            if (!window) co_return;
            allowed = get_u64(window->payload.data());
          }
          const size_t n = std::min<uint64_t>({kTotal - sent, allowed - sent, kMaxPayloadFromAgent});
          co_await p.send(channel, Type::kData, std::string(n, 'd'));
          sent += n;
        }
        co_await p.send(channel, Type::kEnd, "");
      },
      [&](std::shared_ptr<Link> link) -> Awaitable<void> {
        Transfer transfer(link);
        EXPECT_TRUE((co_await transfer.start("{}", after(60s))).has_value());
        size_t total = 0;
        while (true) {
          auto piece = co_await transfer.read(60s);
          EXPECT_TRUE(piece.has_value());
          if (!piece || piece->empty()) break;
          total += piece->size();
        }
        EXPECT_EQ(total, kTotal);
      });
}

TEST(Transfer, AnErrorAtTheEndComesAfterTheBytes) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        const auto request = co_await p.next_of(Type::kRequest);
        const uint32_t c = request->channel;
        co_await p.write(frame(c, Type::kResponse, kOk) + frame(c, Type::kData, "half") +
                         frame(c, Type::kEnd, R"({"ok":false,"code":"conflict","message":"shorter"})"));
      },
      [](std::shared_ptr<Link> link) -> Awaitable<void> {
        Transfer transfer(link);
        EXPECT_TRUE((co_await transfer.start("{}", after(60s))).has_value());
        auto piece = co_await transfer.read(60s);
        EXPECT_EQ(piece.value_or(""), "half");
        piece = co_await transfer.read(60s);
        EXPECT_EQ(piece.error().code, Code::kConflict);
      });
}

TEST(Transfer, WritesWithinTheWindowOnly) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        const auto request = co_await p.next_of(Type::kRequest);
        const uint32_t channel = request->channel;
        co_await p.send(channel, Type::kResponse, kOk);
        uint64_t got = 0, granted = kWindowBytes;
        while (true) {
          const auto next = co_await p.next();
          if (!next || next->type == Type::kEndToAgent) break;
          got += next->payload.size();
          EXPECT_LE(got, granted);
          if (got == granted) {
            granted += kWindowBytes;
            co_await p.send(channel, Type::kWindow, u64(granted));
          }
        }
        co_await p.send(channel, Type::kResponse, R"({"ok":true,"got":)" + std::to_string(got) + "}");
      },
      [](std::shared_ptr<Link> link) -> Awaitable<void> {
        Transfer transfer(link);
        EXPECT_TRUE((co_await transfer.start("{}", after(60s))).has_value());
        EXPECT_TRUE((co_await transfer.write(std::string(1 << 20, 'w'), 60s)).has_value());
        transfer.end();
        auto answer = co_await transfer.finish(after(60s));
        EXPECT_EQ(answer.value_or(""), R"({"ok":true,"got":1048576})");
      });
}

TEST(Transfer, WriteEndsWhenNobodyGrants) {
  Fixture f;
  f.run([](Peer& p) -> Awaitable<void> {
          const auto request = co_await p.next_of(Type::kRequest);
          co_await p.send(request->channel, Type::kResponse, kOk);
        },
        [](std::shared_ptr<Link> link) -> Awaitable<void> {
          Transfer transfer(link);
          EXPECT_TRUE((co_await transfer.start("{}", after(60s))).has_value());
          auto written = co_await transfer.write(std::string(kWindowBytes + 1, 'w'), 50ms);
          EXPECT_EQ(written.error().code, Code::kTimeout);
        });
}

TEST(Transfer, ARefusalHalfWayIsTheErrorOfTheWrite) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        const auto request = co_await p.next_of(Type::kRequest);
        co_await p.send(request->channel, Type::kResponse, kOk);
        co_await p.next_of(Type::kDataToAgent);
        co_await p.send(request->channel, Type::kResponse, R"({"ok":false,"code":"disk_full","message":"full"})");
      },
      [](std::shared_ptr<Link> link) -> Awaitable<void> {
        Transfer transfer(link);
        EXPECT_TRUE((co_await transfer.start("{}", after(60s))).has_value());
        auto written = co_await transfer.write(std::string(kWindowBytes * 2, 'w'), 60s);
        EXPECT_EQ(written.error().code, Code::kDiskFull);
        EXPECT_FALSE(link->is_lost());
      });
}

// What an agent sends on a transfer's channel (1) after its first RESPONSE, and no honest one would.
struct Breach {
  const char* name;
  std::string bytes;
};
class TransferBreach : public ::testing::TestWithParam<Breach> {};

TEST_P(TransferBreach, EndsTheCallWithAgentProtocolAndTheLink) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        const auto request = co_await p.next_of(Type::kRequest);
        EXPECT_EQ(request->channel, 1u);
        co_await p.write(frame(1, Type::kResponse, kOk) + GetParam().bytes);
      },
      [](std::shared_ptr<Link> link) -> Awaitable<void> {
        Transfer transfer(link);
        auto started = co_await transfer.start("{}", after(60s));
        Result<std::string> piece = started;
        while (piece && !piece->empty()) piece = co_await transfer.read(60s);
        EXPECT_FALSE(piece.has_value());
        EXPECT_EQ(piece ? Code::kInternal : piece.error().code, Code::kAgentProtocol);
        EXPECT_TRUE(link->is_lost());
      });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TransferBreach,
    ::testing::Values(Breach{"EmptyData", frame(1, Type::kData, "")},
                      Breach{"ThreeResponses", frame(1, Type::kResponse, kOk) + frame(1, Type::kResponse, kOk)},
                      Breach{"ShortWindow", frame(1, Type::kWindow, "1234567")},
                      Breach{"WindowThatDoesNotGrow", frame(1, Type::kWindow, u64(kWindowBytes))},
                      Breach{"WindowOfEverything", frame(1, Type::kWindow, u64(UINT64_MAX))},
                      Breach{"Output", frame(1, Type::kOutput, std::string(17, '\1'))},
                      Breach{"Exited", frame(1, Type::kExited, "{}")}, Breach{"Hello", frame(1, Type::kHelloOk, "{}")},
                      Breach{"ADaemonsType", frame(1, Type::kRequest, "{}")}),
    [](const auto& param) { return param.param.name; });

TEST(Transfer, DataBeyondTheWindowOfACallerThatDoesNotReadLosesTheLink) {
  Fixture f;
  f.run(
      [](Peer& p) -> Awaitable<void> {
        co_await p.next_of(Type::kRequest);
        std::string bytes = frame(1, Type::kResponse, kOk);
        for (uint64_t sent = 0; sent <= kWindowBytes; sent += kMaxPayloadFromAgent) {
          append_frame(bytes, 1, Type::kData, std::string(kMaxPayloadFromAgent, 'x'));
        }
        co_await p.write(std::move(bytes));
      },
      [](std::shared_ptr<Link> link) -> Awaitable<void> {
        Transfer transfer(link);
        EXPECT_TRUE((co_await transfer.start("{}", after(60s))).has_value());
        EXPECT_TRUE(co_await testing::eventually([&] { return link->is_lost(); }));
        auto written = co_await transfer.write("x", 60s);
        EXPECT_EQ(written ? Code::kInternal : written.error().code, Code::kAgentProtocol);
      });
}

TEST(Transfer, FramesAfterTheEndLoseTheLink) {
  for (const std::string& more : {frame(1, Type::kEnd, ""), frame(1, Type::kData, "x"), frame(1, Type::kResponse, kOk)}) {
    Fixture f;
    f.run(
        [more](Peer& p) -> Awaitable<void> {
          co_await p.next_of(Type::kRequest);
          co_await p.write(frame(1, Type::kResponse, kOk) + frame(1, Type::kEnd, "") + more);
        },
        [](std::shared_ptr<Link> link) -> Awaitable<void> {
          Transfer transfer(link);
          (void)co_await transfer.start("{}", after(60s));
          EXPECT_TRUE(co_await testing::eventually([&] { return link->is_lost(); }));
        });
  }
}

TEST(Transfer, AnswersThatAreNotJsonAreAgentProtocol) {
  const std::string deep(4 << 20, '[');
  for (const std::string& answer : {std::string(), std::string("null"), std::string("[true]"), std::string("{\"ok\":1}"), deep,
                                    std::string("{\"ok\":true"), std::string("{\"ok\":\"\xFF\xFE\"}")}) {
    Fixture f;
    f.run(
        [answer](Peer& p) -> Awaitable<void> {
          const auto request = co_await p.next_of(Type::kRequest);
          if (request) co_await p.send(request->channel, Type::kResponse, answer);
        },
        [](std::shared_ptr<Link> link) -> Awaitable<void> {
          auto result = co_await link->request("{}", after(60s));
          EXPECT_EQ(result ? Code::kInternal : result.error().code, Code::kAgentProtocol);
        });
  }
}

}  // namespace
}  // namespace glovebox::channel
