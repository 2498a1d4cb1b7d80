// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "programs/agent/test_agent.h"

namespace glovebox::agent {
namespace {

using channel::Type;
constexpr std::chrono::milliseconds kQuiet{300};

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += between;
    out += part;
  }
  return out;
}

class WatchTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    if (!IsSkipped()) agent().sh("mkdir -p /tmp/w/sub");
  }
  uint32_t open(json::object fields) {
    fields["op"] = "watch";
    const uint32_t channel = agent().next_channel();
    agent().send(channel, Type::kRequest, fields);
    answer_ = agent().receive_json(channel, Type::kResponse);
    return channel;
  }
  // "type path" of each event until `last` came, or the end.
  std::vector<std::string> events(uint32_t channel, const std::string& last) {
    std::vector<std::string> out;
    while (std::ranges::find(out, last) == out.end()) {
      const auto frame = agent().receive(channel);
      if (frame.type != Type::kData) break;
      for (const auto& line : split(frame.payload, '\n')) {
        if (std::string(line).empty()) continue;
        const auto object = parse_object(line);
        EXPECT_TRUE(object) << line;
        if (object) out.push_back(text_of(*object, "type") + " " + text_of(*object, "path"));
      }
    }
    return out;
  }
  // All that happened in the watched directory until now: what happens after it is a mark.
  std::vector<std::string> events(uint32_t channel) {
    const std::string mark = "mark-" + std::to_string(++marks_);
    agent().sh(": >/tmp/w/" + mark);
    auto out = events(channel, "create " + mark);
    std::erase_if(out, [](const std::string& event) { return event.find(" mark-") != std::string::npos; });
    return out;
  }
  static bool has(const std::vector<std::string>& all, const std::string& event) {
    return std::ranges::find(all, event) != all.end();
  }
  json::object answer_;
  int marks_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Watch, WatchTest, testing::Values(Engine::kNamespaces, Engine::kRunsc),
                         test_name);

TEST_P(WatchTest, TellsWhatHappens) {
  const uint32_t channel = open({{"path", "/tmp/w"}});
  ASSERT_TRUE(answer_.at("ok").as_bool()) << to_text(answer_);
  agent().sh("cd /tmp/w; echo a >f; chmod 600 f; mv f g; rm g; echo b >sub/below");
  const auto all = events(channel);
  for (const char* event : {"create f", "write f", "chmod f", "rename f", "create g", "remove g"}) {
    EXPECT_TRUE(has(all, event)) << event << "\n" << join(all, "\n");
  }
  EXPECT_FALSE(has(all, "create sub/below"));
}

TEST_P(WatchTest, AWrittenFileIsNeverSeenUnderItsTemporaryName) {
  const uint32_t channel = open({{"path", "/tmp/w"}});
  agent().write("1", {{"path", "/tmp/w/new"}});
  EXPECT_EQ(join(events(channel), ","), "create new,write new");
  agent().write("2", {{"path", "/tmp/w/new"}});
  EXPECT_EQ(join(events(channel), ","), "write new");
}

TEST_P(WatchTest, NothingInAMovedDirectoryIsMissed) {
  agent().sh("mkdir -p /tmp/w/a/b");
  const uint32_t channel = open({{"path", "/tmp/w"}, {"recursive", true}});
  agent().sh("cd /tmp/w; for i in 1 2 3 4 5 6 7 8; do mv a z; : >z/b/to$i; mv z a; : >a/b/back$i; done; : >last");
  const auto all = events(channel, "create last");
  for (int i = 1; i <= 8; ++i) {
    for (const std::string event : {"create z/b/to", "create a/b/back"}) {
      EXPECT_TRUE(has(all, event + std::to_string(i))) << event << i << "\n" << join(all, "\n");
    }
  }
}

TEST_P(WatchTest, ADirectoryThatHasLeftIsNotWatched) {
  agent().sh("mkdir -p /tmp/w/a/b");
  const uint32_t channel = open({{"path", "/tmp/w"}, {"recursive", true}});
  agent().sh("mv /tmp/w/a /tmp/gone; : >/tmp/gone/b/secret; : >/tmp/w/last");
  const auto all = events(channel, "create last");
  EXPECT_TRUE(has(all, "rename a"));
  EXPECT_EQ(join(all, ",").find("secret"), std::string::npos) << join(all, "\n");
}

TEST_P(WatchTest, ADirectoryInThePlaceOfOneThatHasLeftIsWatched) {
  agent().sh("cd /tmp/w; mkdir a; for i in 1 2 3 4 5; do mkdir c$i; done");
  const uint32_t channel = open({{"path", "/tmp/w"}, {"recursive", true}});
  const auto expect_told = [&](const std::string& commands, const std::string& event) {
    agent().sh("cd /tmp/w; " + commands);
    const auto all = events(channel);
    EXPECT_TRUE(has(all, event)) << event << "\n" << join(all, "\n");
  };
  for (const std::string i : {"1", "2", "3", "4", "5"}) {
    expect_told("mv a /tmp/gone-a" + i + "; mkdir a; : >a/in-made" + i, "create a/in-made" + i);
    expect_told(": >a/later-in-made" + i, "create a/later-in-made" + i);
    expect_told("mv a /tmp/gone-b" + i + "; mv c" + i + " a; : >a/in-moved" + i, "create a/in-moved" + i);
    expect_told(": >a/later-in-moved" + i, "create a/later-in-moved" + i);
  }
}

TEST_P(WatchTest, FollowsDirectoriesThatAreMadeAndMoved) {
  const uint32_t channel = open({{"path", "/tmp/w"}, {"recursive", true}});
  agent().sh("cd /tmp/w; mkdir -p a/b/c; echo x >a/b/c/f; echo x >sub/f");
  EXPECT_TRUE(has(events(channel, "create sub/f"), "create a/b/c/f"));
  agent().sh("cd /tmp/w; mv a z");
  EXPECT_TRUE(has(events(channel), "rename a"));
  agent().sh("cd /tmp/w; echo y >z/b/c/g");
  const auto all = events(channel);
  EXPECT_TRUE(has(all, "create z/b/c/g")) << join(all, "\n");
  EXPECT_FALSE(has(all, "create a/b/c/g"));
}

TEST_P(WatchTest, EndsWithItsDirectory) {
  const uint32_t channel = open({{"path", "/tmp/w"}, {"recursive", true}});
  agent().sh("rm -r /tmp/w");
  EXPECT_TRUE(has(events(channel, "remove "), "remove "));
}

TEST_P(WatchTest, SaysWhatItCannotWatch) {
  open({{"path", "/tmp/none"}});
  EXPECT_EQ(text_of(answer_, "code"), "file_not_found");
  open({{"path", "/etc/passwd"}});
  EXPECT_EQ(text_of(answer_, "code"), "not_a_directory");
  agent().sh("mkdir -m 700 /tmp/closed");
  open({{"path", "/tmp/closed"}, {"user", "12345"}});
  EXPECT_EQ(text_of(answer_, "code"), "permission_denied");
}

TEST_P(WatchTest, SixtyFourAtATimeAndTheirPlacesComeBack) {
  std::vector<uint32_t> channels;
  while (channels.size() < 64) {
    channels.push_back(open({{"path", "/tmp/w"}}));
    ASSERT_TRUE(answer_.at("ok").as_bool()) << channels.size() << to_text(answer_);
  }
  open({{"path", "/tmp/w"}});
  EXPECT_EQ(text_of(answer_, "code"), "capacity");
  EXPECT_TRUE(agent().request({{"op", "stat"}, {"path", "/tmp"}}).at("ok").as_bool());
  for (const uint32_t channel : channels) agent().send(channel, Type::kCancel);
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < std::chrono::minutes(1);) {
    open({{"path", "/tmp/w"}});
    if (answer_.at("ok").as_bool()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  FAIL() << to_text(answer_);
}

// Nobody gives a window: at most that comes, and the loss is told afterwards. gVisor queues in the
// sandbox's own memory instead.
TEST_P(WatchTest, WhatNobodyTakesOverflows) {
  const uint32_t channel = open({{"path", "/tmp/w"}});
  agent().sh("cd /tmp/w; seq 20000 | xargs touch; seq 20000 | xargs rm");
  uint64_t received = 0;
  bool overflowed = false;
  while (received < channel::kWindowBytes) {
    const auto frame = agent().receive(channel);
    if (frame.type != Type::kData) break;
    received += frame.payload.size();
    overflowed = overflowed || frame.payload.find("overflow") != std::string::npos;
  }
  EXPECT_FALSE(agent().receive_within(channel, kQuiet));
  EXPECT_EQ(received, channel::kWindowBytes);
  std::string grant;
  channel::append_u64(grant, uint64_t{1} << 30);
  agent().send(channel, Type::kWindowToAgent, grant);
  // Where there is a loss to be told it is waited for, where there is none for a while only.
  const auto patience = GetParam() == Engine::kNamespaces ? std::chrono::milliseconds(60'000) : 3 * kQuiet;
  while (!overflowed) {
    const auto frame = agent().receive_within(channel, patience);
    if (!frame) break;
    overflowed = frame->payload.find("overflow") != std::string::npos;
  }
  EXPECT_EQ(overflowed, GetParam() == Engine::kNamespaces);
}

}  // namespace
}  // namespace glovebox::agent
