// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"
#include "programs/agent/test_agent.h"

namespace glovebox::agent {
namespace {

using channel::Type;

class DialTest : public AgentTest {
 protected:
  // A server in the sandbox; returns once it listens.
  uint32_t serve(const std::string& perl) {
    const uint32_t channel =
        agent().exec({{"argv",
                       {"perl", "-MIO::Socket::IP", "-e",
                        "$|=1; $s = IO::Socket::IP->new(LocalHost => $ARGV[0], LocalPort => 8000, "
                        "Listen => 9, ReuseAddr => 1) or die; print qq(up\\n); " +
                            perl,
                        "127.0.0.1"}}});
    while (agent().receive(channel).type != Type::kOutput) {
      if (testing::Test::HasFailure()) break;
    }
    return channel;
  }
  uint32_t dial(json::object fields) {
    fields["op"] = "dial";
    const uint32_t channel = agent().next_channel();
    agent().send(channel, Type::kRequest, fields);
    return channel;
  }
};
INSTANTIATE_TEST_SUITE_P(Dial, DialTest, testing::Values(Engine::kNamespaces, Engine::kRunsc),
                         test_name);

TEST_P(DialTest, CarriesBytesBothWaysWithHalfClose) {
  serve("while ($c = $s->accept) { local $/; $all = <$c>; print $c length($all), $all; close $c }");
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const uint32_t channel = dial({{"port", 8000}, {"host", host}});
    ASSERT_TRUE(agent().receive_json(channel, Type::kResponse).at("ok").as_bool());
    const std::string data = random_bytes(3 << 20);
    agent().send_data(channel, data);  // ends with END, so the server answers only now
    std::string answer;
    for (bool ended = false; !ended;) {
      const auto frame = agent().receive(channel);
      ended = frame.type == Type::kEnd || frame.type == Type::kPing;
      if (frame.type != Type::kData) continue;
      answer += frame.payload;
      std::string window;
      channel::append_u64(window, answer.size() + channel::kWindowBytes);
      agent().send(channel, Type::kWindowToAgent, window);
    }
    EXPECT_TRUE(answer == std::to_string(data.size()) + data) << answer.size();
  }
}

TEST_P(DialTest, StopsAtTheWindow) {
  serve("$c = $s->accept; print $c 'x' x 1000000; sleep 100");
  const uint32_t channel = dial({{"port", 8000}});
  ASSERT_TRUE(agent().receive_json(channel, Type::kResponse).at("ok").as_bool());
  size_t received = 0;
  while (received < channel::kWindowBytes) {
    const auto frame = agent().receive(channel);
    if (frame.type != Type::kData) break;
    received += frame.payload.size();
  }
  EXPECT_EQ(received, channel::kWindowBytes);
  EXPECT_FALSE(agent().receive_within(channel, std::chrono::milliseconds(300)));
  std::string window;
  channel::append_u64(window, 1000000);
  agent().send(channel, Type::kWindowToAgent, window);
  while (received < 1000000) {
    const auto frame = agent().receive(channel);
    if (frame.type != Type::kData) break;
    received += frame.payload.size();
  }
  EXPECT_EQ(received, 1000000u);
}

TEST_P(DialTest, FailuresHaveCodes) {
  const struct {
    json::object fields;
    const char* code;
  } cases[] = {{{{"port", 9}}, "unavailable"},
               {{{"port", 9}, {"host", "::1"}}, "unavailable"},
               {{{"port", 0}}, "invalid_argument"},
               {{{"port", 70000}}, "invalid_argument"},
               {{{"port", 80}, {"host", "example.org"}}, "invalid_argument"}};
  for (const auto& item : cases) {
    EXPECT_EQ(text_of(agent().receive_json(dial(item.fields), Type::kResponse), "code"), item.code);
  }
}

}  // namespace
}  // namespace glovebox::agent
