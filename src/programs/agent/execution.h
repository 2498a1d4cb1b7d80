// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "programs/agent/exec_request.h"
#include "programs/agent/loop.h"
#include "programs/agent/oom.h"
#include "programs/agent/outbox.h"
#include "programs/agent/output_stream.h"
#include "programs/agent/supervisor.h"
#include "programs/agent/tree.h"

namespace glovebox::agent {

// What executions share.
struct ExecutionServices {
  Loop& loop;
  Outbox& outbox;
  Supervisors& supervisors;
  Killer& killer;
  OomWatch& oom;
  int dev_null;
  std::function<void(const std::string& id)> on_removable;  // the execution is destroyed in it
};

// One execution, from EXEC until it is gone and forgotten. Loop thread.
class Execution {
 public:
  Execution(ExecutionServices& services, ExecRequest request);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Gives the launch to a supervisor. On error nothing was started.
  Result<void> start(uint32_t channel);
  void on_supervisor(Supervisor& supervisor);
  // The supervisor was killed from inside: the agent itself reaps its tree now. False when nothing
  // had been started.
  bool on_supervisor_lost();
  void on_orphan_reaped(pid_t pid, int status, const struct rusage& usage);
  void on_orphans_gone();

  void attach(uint32_t channel, uint64_t stdout_offset, uint64_t stderr_offset);
  void detach() { channel_ = 0; }
  void pump();  // sends what the outbox has room for

  void on_stdin(std::string_view bytes);
  void on_stdin_eof();
  void on_ack(uint8_t stream, uint64_t offset);
  void on_drain(uint8_t stream);
  void on_resize(uint16_t columns, uint16_t rows);
  void on_forget();
  void signal(int number, bool tree);
  enum class Outcome { kExited, kTimedOut, kKilledByCaller };
  void kill(Outcome reason);

  // The daemon has the last frame, or nobody wants one: it will be removed in a moment.
  bool is_done() const {
    return gone_ && forgotten_ && stage_ == Stage::kEnded && (channel_ == 0 || gone_sent_);
  }
  const std::string& id() const { return request_.id; }
  uint32_t channel() const { return channel_; }
  pid_t main_pid() const { return main_pid_; }
  // 0 once the tree is empty.
  pid_t supervisor_pid() const { return supervisor_ == nullptr ? 0 : supervisor_->pid; }
  json::object summary() const;

 private:
  enum class Stage { kLaunching, kRunning, kEnding, kEnded };
  Result<void> open_pipes();
  Result<void> open_terminal();
  void prepare_launch();
  void on_running();
  void on_main_ended(int status, const struct rusage& usage, bool children);
  void on_tree_empty();
  void on_deadline();
  void kill_now();
  void begin_ending();
  void finish_if_collected();
  void end();
  void fail_start(const Error& error);
  void give_up(const Error& error);  // may destroy it
  void launch_again();
  void remove_if_done();

  OutputStream* stream(uint8_t number);
  void on_readable(OutputStream& out);
  void watch(OutputStream& out);
  void update_interest(OutputStream& out);
  void close_stream(OutputStream& out);
  void discard(OutputStream& out);
  void write_stdin();
  void close_stdin();
  void acknowledge_stdin();
  json::object exit_record() const;

  ExecutionServices& services_;
  ExecRequest request_;
  uint32_t channel_ = 0;
  Stage stage_ = Stage::kLaunching;
  Supervisor* supervisor_ = nullptr;
  pid_t main_pid_ = 0;

  Launch launch_;
  int launches_ = 1;
  std::vector<char*> argv_, envp_, candidates_;
  UniqueFd child_fds_[3];

  OutputStream out_{1}, err_{2};
  UniqueFd stdin_;
  std::string stdin_queue_;
  size_t stdin_at_ = 0;
  uint64_t stdin_done_ = 0, stdin_acknowledged_ = 0;
  bool stdin_eof_ = false, stdin_watched_ = false;

  std::optional<Loop::TimerId> deadline_, grace_, quiet_, rest_;
  Outcome outcome_ = Outcome::kExited;
  bool kill_started_ = false, kill_gave_up_ = false;
  bool main_ended_ = false, gone_ = false, forgotten_ = false;
  bool exit_sent_ = false, gone_sent_ = false, removal_posted_ = false;
  int status_ = 0;
  struct rusage usage_ = {};
  bool had_children_ = false, had_oom_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted work may outlive us
};

}  // namespace glovebox::agent
