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
  // What it counts as in its sandbox: `running` is let go when the main process has ended, `alive` when nothing of its tree lives
  // any more, both at the latest when it goes.
  struct Counts {
    std::shared_ptr<void> running, alive;
  };
  RunningExecution(ExecutionContext context, ExecInfo info, std::string spool_path, Counts counts);
  ~RunningExecution() override;

  // Starts it through the agent; returns when the program was loaded, or with the agent's typed refusal. `limit`: how long it may
  // run, which the agent enforces and this watches (0: for ever).
  Async<void> start(std::shared_ptr<channel::Link> link, std::string message, std::optional<std::string> stdin_data,
                    bool keep_stdin, Millis limit);
  // After a daemon restart: goes on behind the output that is kept, and binds to the execution the agent still has.
  void attach(std::shared_ptr<channel::Link> link);
  // The sandbox is to be copied, or laid down: returns when what has come of the output is in files, and the agent need not keep it.
  Awaitable<void> settle_output();
  // The agent is gone for now, and attach() follows when it is there again.
  void detach();
  // Recorded by an earlier daemon that could not tell the agent any more; children of it may live.
  void attach_to_forget(std::shared_ptr<channel::Link> link, std::shared_ptr<void> alive);
  // It began before the sandbox had an owner: for him it has begun with the sandbox.
  void begin_at(WallTime time) { info_.started_at = time; }
  // The sandbox is gone: ends it with this outcome if it has not ended.
  void finish_without_agent(const std::string& type, const std::string& message);
  // From the store: one that ran when an earlier daemon died. What is kept of its output can be read; attach() goes on with it.
  void restore_running();
  // From the store: an execution that ended earlier.
  void restore_ended();

  Async<void> record_running();  // so that a later daemon knows it
  Awaitable<void> note_running();  // the same, and a failure is logged
  // True once its program was loaded, also when it has ended since; false when it will never be. kTimeout at the deadline.
  Async<bool> wait_started(Deadline deadline);
  bool is_gone() const { return gone_; }
  Result<void> remove_files();  // blocking
  void abandon();  // it was not started, as far as we know: what of it may come up ends

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

  // Wakes the sandbox for a call, and keeps it so as long as the answer is held.
  std::function<Async<std::shared_ptr<void>>()> wake;
  // Since when the sandbox runs without a break; empty while it stands still.
  std::function<std::optional<Clock::time_point>()> awake_since;
  // Asked when the main process died of SIGKILL: whether the kernel's OOM killer ran in the sandbox since the last time.
  std::function<Awaitable<bool>()> was_oom;
  std::function<void()> on_oom_inside;  // the sandbox's own kernel killed something, which the host does not see
  bool oom_ends_sandbox = false;  // the tier's kernel runs in user space: exit statuses after an OOM kill are not the program's

 private:
  void take_started(const std::string& payload);
  void take_failed(const std::string& payload);
  void take_output(const channel::Frame& frame);
  void keep_output(int stream, std::string_view bytes);
  void take_stdin_ack(const std::string& payload);
  void take_exited(const std::string& payload);
  Awaitable<void> watch_limit(Deadline deadline);
  void mark_gone();
  void forget_counts();
  Awaitable<void> settle(ExecInfo ended, bool had_oom);  // after EXITED: decide oom, end, write, record, tell the agent
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
  Async<std::shared_ptr<void>> wake_for(std::string what);
  void open_kept_output();

  ExecutionContext context_;
  ExecInfo info_;
  Spool spool_;
  Counts counts_;
  std::shared_ptr<channel::Link> link_;
  uint32_t channel_ = 0;
  Notifier changed_;       // start answered, ended, gone, output, stdin window
  Notifier end_changed_;   // ended
  bool started_ = false;
  bool abandoned_ = false;
  bool kept_opened_ = false;      // what an earlier daemon kept of its output
  bool attached_ = false;         // ATTACH, not EXEC, opened the channel
  bool start_answered_ = false;   // STARTED, FAILED or something after them has come on this channel
  bool agent_exited_ = false;     // EXITED has come on this channel
  std::optional<Error> start_error_;
  bool exited_ = false;    // EXITED was taken; the outcome follows at once or after a look at the OOM counter
  bool gone_ = false;
  bool released_ = false;             // memory part is in the store only
  bool writing_ = false, write_failed_ = false, draining_ = false;
  uint64_t unkept_[2] = {0, 0};       // bytes that came though we do not keep any more
  uint64_t seen_[2] = {0, 0};         // stream offsets that arrived, kept or not
  uint64_t acknowledged_[2] = {0, 0};
  bool stdin_open_ = false;
  uint64_t stdin_sent_ = 0, stdin_taken_ = 0;
  std::optional<uint64_t> stdin_base_;  // what the agent had written before we attached
  uint64_t stdin_acked_ = 0;            // the agent's last word
  uint64_t stdin_extra_ = 0;            // end-of-file characters the agent writes to a terminal for us
};

}  // namespace glovebox::sandbox
