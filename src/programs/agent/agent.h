// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "programs/agent/execution.h"
#include "programs/agent/freezer.h"
#include "programs/agent/inbox.h"
#include "programs/agent/requests.h"
#include "programs/agent/setup.h"

namespace glovebox::agent {

struct AgentOptions {
  int from_daemon = -1;  // both non-blocking, above 2, close-on-exec
  int to_daemon = -1;
  int dev_null = -1;
  bool may_change_system = true;  // host name, /etc, loopback, clock
  rlimit64 open_files = {};       // as the agent was started with
  Freezer freezer;
  SteadyTime started;
};

// Takes the daemon's messages apart and hands each to the execution, request or connection that its
// channel means.
class Agent {
 public:
  explicit Agent(AgentOptions options);
  [[noreturn]] void run();

 private:
  static constexpr size_t kMaxExecutions = 4096;

  void on_input();
  void on_end_of_input();
  void handle(Inbox::Message& message);
  void on_hello(Inbox::Message& message);
  void on_prepare();
  void on_proceed(const Inbox::Message& message);
  void look_at_clock();
  void apply_hello(const json::object& hello);
  std::string hello_answer(std::optional<json::object> resumed) const;

  void on_exec(uint32_t channel, Inbox::Message& message);
  Result<void> start_execution(uint32_t channel, const json::object& object);
  void on_attach(uint32_t channel, const Inbox::Message& message);
  void for_execution(Execution& execution, Inbox::Message& message);
  void remove_execution(const std::string& id);
  void pump_all();
  Requests::ExecutionRoots execution_roots() const;

  void on_child_signal();
  void on_supervisor_died(Supervisor& supervisor);
  void kill_orphans();

  AgentOptions options_;
  Loop loop_;
  Outbox outbox_;
  Inbox inbox_;
  Supervisors supervisors_{options_.freezer};
  Killer killer_;
  OomWatch oom_{owns_kernel(), "/proc/vmstat"};
  Users users_;
  Setup setup_;
  ExecDefaults defaults_;
  ExecutionServices services_;
  std::unordered_map<std::string, std::unique_ptr<Execution>> executions_;
  std::unordered_map<uint32_t, Execution*> channels_;
  std::vector<std::string> orphaned_;  // executions whose supervisor was killed
  size_t next_pumped_ = 0;
  bool is_held_ = false;      // somebody is copying the sandbox
  SteadyTime held_since_ = {}, looked_at_ = {};  // at the clock, while held
  std::chrono::microseconds longest_gap_{0};
  Requests requests_;
};

}  // namespace glovebox::agent
