// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "metrics/metrics.h"
#include "sandbox/codec.h"
#include "sandbox/execution.h"
#include "sandbox/gate.h"
#include "sandbox/networking.h"
#include "sandbox/warmth.h"

namespace glovebox::sandbox {

// One sandbox: the state machine creating → ready ⇄ paused → ending → ended. Every transition is in the store before anybody sees it.
// Loop thread only.
class Sandbox : public std::enable_shared_from_this<Sandbox> {
 public:
  struct Context {
    ExecutionContext execution;
    runtime::Runtime* runtime = nullptr;
    network::Network* network = nullptr;
    std::shared_ptr<Gate> starts;                 // engines start through it
    std::function<void(const Sandbox&)> on_ended;  // once: gives its capacity back
  };
  Sandbox(Context context, codec::SandboxDocument document);

  const SandboxInfo& info() const { return document_.info; }
  SandboxInfo snapshot_info() const;  // with what changes by the moment
  BlockingPool& pool() const { return *context_.execution.pool; }
  const Config& config() const { return *context_.execution.config; }
  bool is_live() const { return info().state != State::kEnded; }

  // From creating to ready; on failure it ends (start_failed) and the cause is returned. ready_ms counts from `began`.
  Async<void> start(Deadline deadline, Clock::time_point began);
  // What it starts from besides its template. `executions` ran in what the image is of, and `hold` keeps the image.
  struct Origin {
    codec::StoredImage image;
    std::vector<ExecInfo> executions;
    std::shared_ptr<void> hold;
  };
  void set_origin(Origin origin) { origin_ = std::move(origin); }  // before start()
  // An image of it as it is, into an empty directory; not sealed. It is the same afterwards.
  struct Written {
    runtime::SnapshotImage content;
    std::vector<ExecInfo> executions;  // that run in it
  };
  Async<Written> write_image(std::string directory, Deadline deadline);
  // Goes on from this image, in place of what it is now. When it returns an error before anything was touched, it goes on as it was;
  // after that it is hibernated, on the image.
  Async<void> reset(Origin origin, std::string snapshot);
  const codec::SandboxDocument& document() const { return document_; }
  Async<UniqueFd> open_template() const;  // its root directory
  std::vector<ExecInfo> unended() const;

  // For the pool, in this order: the same, without an owner; what else is to run in it, if anything; and then it stands still.
  // One that failed is to be ended.
  Async<void> start_pooled(Deadline deadline);
  Async<void> warm(Warmer warmer, std::vector<std::string> wanted);
  Async<void> wait_for_owner();
  bool is_pooled() const { return info().tenant.empty(); }
  bool is_warm() const { return !executions_.empty(); }  // while it is pooled: nobody else has started any
  bool can_be_claimed() const;
  // Makes one of the pool what `wanted` says, from creating to ready, as start() would have; its id it has already. When that fails
  // and it is in the pool again (is_pooled), the sandbox was no good, which says nothing about another one; it is to be ended.
  Async<void> claim(SandboxInfo wanted, Deadline deadline, Clock::time_point began);
  // Returns when it is no longer starting, or at the deadline.
  Awaitable<void> wait_started(Deadline deadline);
  // From the store, before adopt().
  void restore_execution(ExecInfo info);
  // From the store after a restart: goes on with a ready one, cleans up any other. Ends with host_lost when it is gone.
  Awaitable<void> adopt();

  // Ends it for `reason` (the first one counts) and returns when nothing of it is left on the host, or at the deadline.
  Awaitable<void> end(std::string reason, std::string message, Deadline deadline);

  // Stops it as it is, memory included, until it is used again or resumed; kConflict when calls under way do not end within a moment.
  // `insists`: they are stopped as well. Nothing to do when it is paused already.
  Async<void> pause(std::string cause, bool insists);
  // The same, and its memory is freed: it goes on from an image. What is kept is the runtime's word (kUnsupported when that is less than
  // what is required).
  Async<void> hibernate(std::string cause, bool insists, std::optional<runtime::Kept> required);
  // Where memory is copied, the engine has the files of volumes open, and what is under /tmp is not in the image: kUnsupported.
  Result<void> check_can_be_copied() const;
  bool is_hibernated() const { return document_.image.has_value(); }
  Result<void> check_keeps(std::optional<runtime::Kept> required) const;  // kUnsupported
  runtime::Kept keeps() const { return context_.runtime->keeps(); }
  Async<void> resume();

  Async<void> update(Update update);
  // Its part in the network; always there, also without a link.
  Networking& networking() { return *networking_; }
  Async<void> set_network(NetworkPolicyPtr policy);
  // An entry of one of its logs; `is_package`: of the package log.
  // Keeps the totals, so that limits hold across restarts.
  void take_network_usage(const network::Usage& usage);
  void take_network_event(bool is_package, boost::json::object event);

  // Permission to talk to the agent: the sandbox is ready, thawed, and counts as active while this lives. A paused one is resumed.
  class Lease {
   public:
    Lease() = default;
    explicit Lease(std::shared_ptr<Sandbox> sandbox);
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();
    const std::shared_ptr<channel::Link>& link() const { return sandbox_->link_; }

   private:
    std::shared_ptr<Sandbox> sandbox_;
  };
  Async<Lease> use();

  // A connection into the sandbox is open as long as this is held: it is not frozen meanwhile, and still idle unless touch()ed.
  std::shared_ptr<void> hold_connection() { return count(&Sandbox::connections_); }
  void touch() { last_activity_ = Clock::now(); }
  // A watch on its files, which holds it in no state, as long as this is held; kCapacity beyond 64, also when its agent would take more.
  // `cut` ends it before its time: cut_watches() does.
  using CutWatch = std::function<void(const Error&)>;
  Result<std::shared_ptr<void>> hold_watch(CutWatch cut);
  void cut_watches(const Error& error);
  // What happened in it is still on its way out: it is not frozen as long as this is held. No activity either.
  std::shared_ptr<void> hold_awake();
  // The channel as it is, without waking anything; null unless the sandbox is ready and awake.
  std::shared_ptr<channel::Link> awake_link() const;
  // Since when its processes run without a break; empty while they stand still.
  std::optional<Clock::time_point> awake_since() const;

  Async<ExecutionPtr> execute(ExecSpec spec);
  Async<SandboxService::Started> execute_once(ExecSpec spec);
  Async<ExecutionPtr> execution(std::string id);
  std::vector<ExecInfo> executions() const;  // newest first
  Async<runtime::Usage> usage();

 private:
  std::shared_ptr<void> count(int Sandbox::*which);  // one more, for as long as it is held
  std::shared_ptr<RunningExecution> add_execution(ExecInfo info);
  Awaitable<void> drop_execution(std::shared_ptr<RunningExecution> execution);
  Async<ExecutionPtr> start_execution(Lease lease, ExecSpec spec);
  Result<std::shared_ptr<RunningExecution>> find_earlier(const ExecSpec& spec) const;
  Awaitable<void> forget_execution(std::shared_ptr<RunningExecution> execution);
  void prune_executions();
  Async<void> connect(runtime::ChannelFds fds, Deadline deadline, const Identity* identity, std::vector<codec::AgentExecution>* known);
  Async<void> start_engine(Deadline deadline);
  Async<int> connect_network();
  Awaitable<void> note_denials();
  Async<void> become_ready(Clock::time_point began);
  Async<std::vector<codec::AgentExecution>> take_over();
  Async<void> wait_held();
  Async<void> wait_settled();  // while a transition between ready and paused is being recorded, nothing else may be
  Async<void> find_paused();
  Async<void> reconnect();
  Async<void> check_user(Deadline deadline);
  Async<void> stand_still();
  void hand_over(const std::vector<codec::AgentExecution>& known);
  Async<void> meet_owner(bool is_other_user, Deadline deadline);
  void go_on();  // starts the watchers of a ready sandbox
  void watch_death_once();
  void resume_executions(const std::vector<codec::AgentExecution>& known);
  Awaitable<void> watch_time();
  Awaitable<void> watch_death();
  Awaitable<void> finish(std::string reason, std::string message);
  bool writes_volumes_by_itself() const;
  Awaitable<void> flush_volumes();
  Result<void> recover_volumes() const;  // blocks; its engine is gone
  Awaitable<void> time_out(std::string cause, std::string message);
  Awaitable<void> freeze();
  Async<void> stop_processes();
  Async<void> enter_pause(std::string cause, bool insists);
  Async<void> leave_pause();
  Async<void> wait_calls(bool insists);
  static void renew_lifetime(SandboxInfo* info);
  bool keeps_memory() const { return keeps() == runtime::Kept::kMemoryAndFiles; }
  std::string own_image_directory() const;
  std::optional<codec::StoredImage> image_to_start() const;
  Async<void> check_start(const codec::StoredImage& image);
  Async<Written> link_own_image(std::string directory);
  Async<Written> write_image_now(std::string directory, Deadline deadline);
  Async<Written> hold_and_write(std::string directory, Deadline deadline);
  Async<runtime::SnapshotImage> write_last_image(std::string directory);
  Awaitable<void> give_up_image();
  Async<void> run_for_a_moment();
  Async<void> enter_hibernation(std::string cause, bool insists);
  Async<void> lay_down(codec::StoredImage image, Paused paused, std::string why_executions_end);
  Awaitable<void> drop_engine(bool executions_go_on, std::string why_executions_end);
  Awaitable<void> remove_engine();
  Async<void> leave_hibernation();
  Async<void> start_from_image(Deadline deadline);
  Async<void> record_resumed();
  Async<void> adopt_executions(const std::vector<codec::AgentExecution>& known, const std::string& directory);
  Async<void> go_back(Origin origin, std::string snapshot);
  Async<void> wake();
  metrics::Labels runtime_label() const;
  Result<void> check_usable() const;  // ready or paused
  bool is_awake() const { return !info().frozen && !freezing_ && !thawing_ && !resuming_; }
  Deadline lifetime_due() const;
  Deadline idle_due(Clock::time_point now) const;
  Deadline freeze_due(Clock::time_point now) const;
  Deadline answer_due(Clock::time_point now);
  Error ended_error() const;
  Async<void> save(const codec::SandboxDocument& document);
  bool is_busy() const { return leases_ > 0 || alive_executions_ > 0 || connections_ > 0 || holds_awake_ > 0; }

  Context context_;
  codec::SandboxDocument document_;
  std::shared_ptr<channel::Link> link_;
  UniqueFd death_fd_;
  std::optional<runtime::ChannelFds> waiting_channel_;  // of one in the pool: looked up before somebody waits for it
  std::shared_ptr<Networking> networking_;
  bool noting_denials_ = false;
  Clock::time_point next_usage_save_ = Clock::time_point::min();
  bool saving_usage_ = false;  // or about to
  std::map<std::string, std::shared_ptr<RunningExecution>> executions_;
  std::vector<std::string> execution_order_;  // oldest first
  Notifier changed_;
  int leases_ = 0, running_executions_ = 0, alive_executions_ = 0, connections_ = 0, holds_awake_ = 0;
  std::list<CutWatch> watches_;
  Clock::time_point last_activity_ = Clock::now();
  Clock::time_point awake_since_ = Clock::time_point::min();
  Clock::time_point asked_at_ = Clock::time_point::min();  // the agent, whether it lives
  Clock::time_point no_freeze_before_ = Clock::time_point::min(), no_pause_before_ = Clock::time_point::min();  // after one that failed
  bool warming_ = false;    // it has no owner, and can be used all the same
  bool starting_ = false, freezing_ = false, thawing_ = false;  // the runtime is at work: the end waits
  bool pausing_ = false, resuming_ = false;                     // on the way between ready and paused
  bool imaging_ = false;                                        // an image of it is being written
  bool resting_ = false;                                        // its engine is being removed, and not its end
  std::optional<Origin> origin_;
  std::shared_ptr<void> image_hold_;  // a snapshot that it goes on from
  bool held_ = false;       // this daemon watches it
  bool death_is_watched_ = false;
  bool connected_ = false;  // and its agent has answered this daemon
  uint64_t seen_oom_kills_ = 0;
  uint64_t oom_kills_inside_ = 0;  // that the agent told of, since this daemon's start
  std::optional<std::pair<std::string, std::string>> end_wanted_;  // reason, message; set once
};

}  // namespace glovebox::sandbox
