// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "channel/link.h"
#include "sandbox/config.h"
#include "sandbox/service.h"
#include "sandbox/spool.h"
#include "store/store.h"

namespace glovebox::sandbox {

// What an execution needs of the daemon; outlives all of them.
struct ExecutionContext {
  Executor executor;
  BlockingPool* pool = nullptr;
  store::Store* store = nullptr;
  const Config* config = nullptr;
};

// An execution that runs, or ran, in a sandbox of this daemon. Its end is recorded before the agent may forget it, so a daemon that
// dies in between finds it again.
class RunningExecution : public Execution, public channel::Receiver, public std::enable_shared_from_this<RunningExecution> {
 public:
  // `on_end`: once, when the main process has ended; `on_gone`: once, when nothing of its tree lives any more.
  struct Hooks {
    std::function<void()> on_end;
    std::function<void()> on_gone;
  };
  RunningExecution(ExecutionContext context, ExecInfo info, std::string spool_path, Hooks hooks);
  ~RunningExecution() override;

  // Starts it through the agent; returns when the program was loaded, or with the agent's typed refusal.
  Async<void> start(std::shared_ptr<channel::Link> link, std::string message, std::optional<std::string> stdin_data,
                    bool keep_stdin, Deadline deadline);
  // After a daemon restart: binds to the execution the agent still has.
  void attach(std::shared_ptr<channel::Link> link);
  // Recorded by an earlier daemon that could not tell the agent any more.
  void attach_to_forget(std::shared_ptr<channel::Link> link);
  // The sandbox is gone: ends it with this outcome if it has not ended.
  void finish_without_agent(const std::string& type, const std::string& message);
  // From the store: an execution that ended earlier.
  void restore_ended();

  bool is_gone() const { return gone_; }
  Result<void> remove_files();  // blocking
  void disarm() { hooks_ = {}; }  // it never started: no hook is due

  const ExecInfo& info() const override { return info_; }
  Awaitable<bool> wait(Deadline deadline) override;
  Async<std::vector<Chunk>> read(uint64_t cursor, size_t max_bytes) override;
  Awaitable<bool> wait_output(uint64_t cursor, Deadline deadline) override;
  Async<void> write_stdin(std::string data) override;
  Async<void> close_stdin() override;
  Async<void> signal(int number, bool tree) override;
  Async<void> kill() override;
  Async<void> resize(int cols, int rows) override;

  void on_frame(channel::Frame& frame) override;
  void on_lost(const Error& error) override;

  // Asked when the main process died of SIGKILL: whether the kernel's OOM killer ran in the sandbox since the last time.
  std::function<Awaitable<bool>()> was_oom;

 private:
  void take_output(const channel::Frame& frame);
  void take_exited(const std::string& payload);
  void mark_gone();
  Awaitable<void> settle(ExecInfo ended);  // after EXITED: decide oom, end, write, record, tell the agent
  Awaitable<void> record_end();
  Awaitable<void> record_start();  // once it has run for a moment
  Awaitable<void> write_loop();
  void acknowledge(const Spool::Batch& batch);
  void protocol_error(std::string message);
  void update_counts();
  void drain();
  void end_now(ExecInfo ended);
  uint64_t kept() const { return released_ ? info_.kept_bytes : spool_.end(); }
  Awaitable<void> feed(std::string data, bool close);
  Result<void> check_running(std::string_view what) const;

  ExecutionContext context_;
  ExecInfo info_;
  Spool spool_;
  Hooks hooks_;
  std::shared_ptr<channel::Link> link_;
  uint32_t channel_ = 0;
  Notifier changed_;       // start answered, ended, output, stdin window
  bool started_ = false;
  std::optional<Error> start_error_;
  bool exited_ = false;    // EXITED was taken; the outcome follows at once or after a look at the OOM counter
  bool gone_ = false;
  bool released_ = false;             // memory part is in the store only
  bool writing_ = false, draining_ = false;
  uint64_t seen_[2] = {0, 0};         // stream offsets that arrived, kept or not
  uint64_t acknowledged_[2] = {0, 0};
  bool stdin_open_ = false;
  uint64_t stdin_sent_ = 0, stdin_taken_ = 0;
};

}  // namespace glovebox::sandbox
