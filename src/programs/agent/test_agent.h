// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "channel/frame.h"
#include "programs/agent/json.h"

// The real agent for tests: as process 1 of a sandbox with a scratch root file system that has the
// host's programs, and the daemon's side of its channel. Needs root.
namespace glovebox::agent {

enum class Engine { kNamespaces, kRunsc };

struct ExecOutcome {
  std::string out, err;
  json::object started, exited, failed;
  bool gone = false;
  std::string code() const;     // of FAILED
  std::string outcome() const;  // of EXITED
  int64_t exit_code() const;    // -1 without one
};

class TestAgent {
 public:
  // Why this engine cannot be used here; empty when it can.
  static std::string unusable(Engine engine);

  explicit TestAgent(Engine engine);
  ~TestAgent();

  // ---- Frames ----
  void send(uint32_t channel, channel::Type type, std::string_view payload = {});
  void send(uint32_t channel, channel::Type type, const json::object& object) {
    send(channel, type, std::string_view(to_text(object)));
  }
  void send_raw(std::string_view bytes);
  // The next message of this channel, those of others being kept; fails the test and returns PING
  // after a minute.
  channel::Frame receive(uint32_t channel);
  std::optional<channel::Frame> receive_within(uint32_t channel, std::chrono::milliseconds limit);
  std::string receive_raw(size_t at_most);  // straight from the pipe
  size_t pipe_holds() const;                // unread bytes from the agent
  uint32_t next_channel() { return ++last_channel_; }

  // Says HELLO as a new daemon would: what the old connection left unread is dropped.
  json::object hello(json::object extra = {});

  // ---- Executions ----
  uint32_t exec(json::object request);
  // Acknowledges and forgets. `read_before`: bytes of standard output that the test has taken
  // itself.
  ExecOutcome finish(uint32_t channel, bool until_gone = true, size_t read_before = 0);
  ExecOutcome run(json::object request) { return finish(exec(std::move(request))); }
  ExecOutcome sh(const std::string& command) { return run({{"command", command}}); }
  void forget_until_gone(uint32_t channel);  // fails the test when another frame comes
  void kill(uint32_t channel, const char* reason = "killed_by_caller");

  // ---- Requests ----
  json::object request(json::object fields);
  json::object write(const std::string& content, json::object fields);
  json::object receive_json(uint32_t channel, channel::Type type);
  // DATA until END, granting windows; the END's payload goes to *end.
  std::string receive_data(uint32_t channel, std::string* end = nullptr);
  void send_data(uint32_t channel, std::string_view bytes);  // and END; within the windows
  std::string read(const std::string& path, json::object* answer = nullptr);
  std::set<pid_t> pids();

  const std::string& root() const { return root_; }

 private:
  void start_child(Engine engine, int in, int out);
  bool read_more(std::chrono::milliseconds limit);
  void build_root();

  Engine engine_;
  std::string scratch_, root_, id_;
  pid_t child_ = -1;
  UniqueFd to_agent_, from_agent_;
  UniqueFd keep_in_, keep_out_;  // the sandbox's ends, as the runtime keeps them open
  channel::Decoder decoder_{channel::kMaxPayloadFromAgent, channel::kMaxMessageFromAgent};
  std::string before_sync_;
  bool synced_ = false;
  std::deque<channel::Frame> kept_;
  uint32_t last_channel_ = 0;
  uint64_t last_execution_ = 0;
};

// Tests that hold for every engine: TEST_P(AgentTest, …).
class AgentTest : public testing::TestWithParam<Engine> {
 protected:
  void SetUp() override;
  TestAgent& agent() { return *agent_; }
  std::unique_ptr<TestAgent> agent_;
};

std::string test_name(const testing::TestParamInfo<Engine>& info);
std::string text_of(const json::object& object, std::string_view field);

}  // namespace glovebox::agent
