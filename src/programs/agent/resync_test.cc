// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <thread>

#include "programs/agent/test_agent.h"

namespace glovebox::agent {
namespace {

using channel::Type;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class ResyncTest : public AgentTest {};
INSTANTIATE_TEST_SUITE_P(Resync, ResyncTest, testing::Values(Engine::kNamespaces, Engine::kRunsc),
                         test_name);

TEST_P(ResyncTest, PingIsEchoed) {
  agent().send(0, Type::kPing, "12345678");
  const auto pong = agent().receive(0);
  EXPECT_EQ(static_cast<int>(pong.type), static_cast<int>(Type::kPong));
  EXPECT_EQ(pong.payload, "12345678");
}

TEST_P(ResyncTest, ANewDaemonFindsEveryExecutionAndEveryUnacknowledgedByte) {
  agent().exec(
      {{"id", "live"}, {"command", "echo one; read x; echo two; exit 6"}, {"stdin", true}});
  const uint32_t ended = agent().exec({{"id", "over"}, {"command", "printf 0123456789; exit 5"}});
  while (agent().receive(ended).type != Type::kExited) {
  }
  agent().send(ended, Type::kAck, channel::stream_header(channel::kStdout, 4));
  const json::object answer = agent().hello();
  const auto& executions = answer.at("executions").as_array();
  ASSERT_EQ(executions.size(), 2u);
  for (const json::value& execution : executions) {
    const bool is_live = execution.at("id").as_string() == "live";
    EXPECT_EQ(execution.at("state").as_string(), is_live ? "running" : "exited");
    if (is_live) continue;
    EXPECT_EQ(execution.at("exit").at("code").as_int64(), 5);
    EXPECT_EQ(execution.at("stdout").at("start").to_number<int>(), 4);
    EXPECT_EQ(execution.at("stdout").at("end").to_number<int>(), 10);
  }

  const uint32_t over = agent().next_channel();
  agent().send(over, Type::kAttach, json::object{{"id", "over"}, {"stdout", 6}, {"stderr", 0}});
  const auto output = agent().receive(over);
  ASSERT_EQ(static_cast<int>(output.type), static_cast<int>(Type::kOutput));
  EXPECT_EQ(channel::get_u64(output.payload.data() + 8), 6u);
  EXPECT_EQ(output.payload.substr(channel::kStreamHeaderBytes), "6789");
  EXPECT_EQ(agent().receive_json(over, Type::kExited).at("code").as_int64(), 5);
  EXPECT_FALSE(agent().receive_within(
      over, milliseconds(50)));  // kept until the daemon has recorded the end
  agent().forget_until_gone(over);

  const uint32_t live = agent().next_channel();
  agent().send(live, Type::kAttach, json::object{{"id", "live"}, {"stdout", 0}, {"stderr", 0}});
  agent().send(live, Type::kStdin, "go\n");
  const auto result = agent().finish(live);
  EXPECT_EQ(result.out, "one\ntwo\n");
  EXPECT_EQ(result.exit_code(), 6);
  EXPECT_TRUE(agent().hello().at("executions").as_array().empty());
}

TEST_P(ResyncTest, AnUnknownExecutionCannotBeAttached) {
  const uint32_t channel = agent().next_channel();
  agent().send(channel, Type::kAttach, json::object{{"id", "never"}, {"stdout", 0}, {"stderr", 0}});
  EXPECT_EQ(text_of(agent().receive_json(channel, Type::kFailed), "code"), "execution_not_found");
}

// The daemon dies while the pipe is full and half a frame has been read.
TEST_P(ResyncTest, AFloodSurvivesTheDaemonsDeathWithoutALostByte) {
  const uint32_t first = agent().exec({{"id", "flood"}, {"command", "seq 1 400000"}});
  EXPECT_EQ(static_cast<int>(agent().receive(first).type), static_cast<int>(Type::kStarted));
  agent().receive_raw(1000);
  std::this_thread::sleep_for(
      milliseconds(100));  // the pipe fills meanwhile; nothing depends on how far
  agent().hello();
  const uint32_t second = agent().next_channel();
  agent().send(second, Type::kAttach, json::object{{"id", "flood"}, {"stdout", 0}, {"stderr", 0}});
  const auto result = agent().finish(second);
  std::string expected;
  for (int i = 1; i <= 400000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(result.out == expected) << result.out.size() << " of " << expected.size();
}

TEST_P(ResyncTest, UnfinishedMessagesOfADeadDaemonAreForgotten) {
  std::string half;
  channel::append_frame(half, 3, Type::kExec, R"({"id": "half", "comma)", channel::kFlagMore);
  channel::append_frame(half, 0, Type::kHello, R"({"version": 1, "nonce": "00)",
                        channel::kFlagMore);
  agent().send_raw(half);
  const json::object answer = agent().hello({{"env", {{"BIG", std::string(9000, 'b')}}}});
  EXPECT_EQ(answer.at("version").as_int64(), 1);
  EXPECT_EQ(agent().run({{"command", "echo ${#BIG}"}}).out, "9000\n");
}

TEST_P(ResyncTest, HelloAbortsAnUploadAndLeavesNothing) {
  const uint32_t channel = agent().next_channel();
  agent().send(channel, Type::kRequest,
               json::object{{"op", "write"}, {"path", "/tmp/dir/target"}, {"parents", true}});
  ASSERT_TRUE(agent().receive_json(channel, Type::kResponse).at("ok").as_bool());
  agent().send(channel, Type::kDataToAgent, "half of it");
  agent().hello();
  for (const auto start = steady_clock::now(); steady_clock::now() - start < std::chrono::minutes(1);) {  // the worker cleans up by itself, soon
    if (agent().request({{"op", "list"}, {"path", "/tmp/dir"}}).at("entries").as_array().empty())
      return;
  }
  FAIL() << "a temporary file was left";
}

TEST_P(ResyncTest, ATreeThatOutlivesItsMainProcessIsStillKilledByANewDaemon) {
  const uint32_t first = agent().exec({{"id", "bg"}, {"command", "sleep 100 & exit 0"}});
  agent().finish(first, false);
  agent().hello();
  const uint32_t second = agent().next_channel();
  agent().send(second, Type::kAttach, json::object{{"id", "bg"}, {"stdout", 0}, {"stderr", 0}});
  EXPECT_TRUE(agent().receive_json(second, Type::kExited).at("children").as_bool());
  agent().kill(second);
  agent().forget_until_gone(second);
  EXPECT_TRUE(agent().pids().empty());
}

TEST_P(ResyncTest, SetsUpTheSystemOnceAndFollowsNoLink) {
  EXPECT_EQ(agent().read("/etc/hostname"), "box\n");
  EXPECT_NE(agent().read("/etc/hosts").find("127.0.0.1 localhost"), std::string::npos);
  EXPECT_EQ(agent().read("/etc/resolv.conf"), "");
  EXPECT_EQ(agent().sh("stat -c '%a %U' /tmp /workspace /home/user").out,
            "1777 root\n755 user\n755 user\n");
  const std::string machine = agent().read("/etc/machine-id");
  EXPECT_EQ(machine.size(), 33u);
  ASSERT_EQ(
      agent()
          .run({{"command", "echo mine > /etc/hosts; ln -sf /srv/x /etc/hostname; chmod 700 /tmp"},
                {"user", "root"}})
          .exit_code(),
      0);
  agent().hello();
  EXPECT_EQ(agent().read("/etc/hosts"), "mine\n");
  EXPECT_EQ(agent().read("/etc/machine-id"), machine);
  agent().hello({{"hostname", "copy"}, {"sandbox", "sb-2"}});
  EXPECT_EQ(agent().read("/etc/hostname"), "copy\n");
  EXPECT_EQ(text_of(agent().request({{"op", "stat"}, {"path", "/srv/x"}}), "code"),
            "file_not_found");
  EXPECT_NE(agent().read("/etc/machine-id"), machine);
}

TEST_P(ResyncTest, HeldStillItWritesNothingAndLosesNothing) {
  const uint32_t channel = agent().exec({{"command", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i; done; sleep 0.1"}});
  const auto start = steady_clock::now();
  agent().send(0, Type::kPrepare);
  EXPECT_EQ(static_cast<int>(agent().receive(0).type), static_cast<int>(Type::kPrepared));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(agent().pipe_holds(), 0u);
  agent().send(0, Type::kProceed);
  const auto stall = agent().receive(0);
  EXPECT_EQ(static_cast<int>(stall.type), static_cast<int>(Type::kProceeded));
  const auto most = std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - start).count();
  EXPECT_LE(channel::get_u64(stall.payload.data()), static_cast<uint64_t>(most));
  const auto result = agent().finish(channel);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 20000);
}

TEST_P(ResyncTest, AHelloEndsTheHoldAndACopyConfirmsWhoItIs) {
  agent().send(0, Type::kPrepare);
  EXPECT_EQ(static_cast<int>(agent().receive(0).type), static_cast<int>(Type::kPrepared));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const json::object answer = agent().hello({{"resumed", json::object{{"machine_id", ""}, {"boot_id", ""}}}});
  ASSERT_TRUE(answer.contains("resumed"));
  const auto& resumed = answer.at("resumed").as_object();
  EXPECT_FALSE(resumed.contains("error"));
  EXPECT_EQ(resumed.at("sample").as_string().size(), 32u);
  EXPECT_GE(resumed.at("unix_time_ns").to_number<int64_t>(), std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  const json::object again = agent().hello({{"resumed", json::object{}}});
  EXPECT_NE(again.at("resumed").at("sample").as_string(), resumed.at("sample").as_string());
}

}  // namespace
}  // namespace glovebox::agent
