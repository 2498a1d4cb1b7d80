// SPDX-License-Identifier: Apache-2.0
// Sandboxes of the pool: started without an owner, claimed by one.
#include <algorithm>

#include "sandbox/beside.h"
#include "sandbox/dial.h"
#include "sandbox/sandbox.h"

namespace glovebox::sandbox {
namespace {

constexpr Millis kEndWait{30'000};

class Unowned final : public Inside {
 public:
  explicit Unowned(std::shared_ptr<Sandbox> box) : box_(std::move(box)) {}
  Async<ExecutionPtr> execute(ExecSpec spec) override { return box_->execute(std::move(spec)); }
  Async<std::unique_ptr<http::Stream>> dial(uint16_t port, SandboxService::Dialling how) override {
    return sandbox::dial(box_, port, how == SandboxService::Dialling::kConfirmed);
  }

 private:
  std::shared_ptr<Sandbox> box_;
};

}  // namespace

bool Sandbox::can_be_claimed() const { return is_pooled() && info().state == State::kReady && info().frozen && !end_wanted_; }

Async<void> Sandbox::start_pooled(Deadline deadline) {
  const auto self = shared_from_this();
  starting_ = true;
  auto started = co_await start_engine(deadline);
  if (started && info().network) started = co_await networking_->learn_release(link_);
  starting_ = false;
  changed_.notify();
  co_return started;
}

Async<void> Sandbox::warm(Warmer warmer, std::vector<std::string> wanted) {
  const auto self = shared_from_this();
  if (end_wanted_) co_return fail(ended_error());
  if (!warmer) co_return fail(Code::kUnsupported, "nothing here can do that");
  Unowned inside(self);
  warming_ = true;
  auto warmed = co_await warmer(inside, wanted);
  warming_ = false;
  if (end_wanted_) co_return fail(ended_error());
  const auto ended = [](const auto& entry) { return entry.second->ended(); };
  if (warmed && std::ranges::any_of(executions_, ended)) co_return fail(Code::kSandboxIo, "what was started in it has ended");
  co_return warmed;
}

// Its agent is spoken to again when it has an owner, as after a restart of the daemon.
Async<void> Sandbox::wait_for_owner() {
  const auto self = shared_from_this();
  starting_ = true;
  auto waits = co_await stand_still();
  starting_ = false;
  changed_.notify();
  co_return waits;
}

Async<void> Sandbox::stand_still() {
  if (end_wanted_) co_return fail(ended_error());
  codec::SandboxDocument ready = document_;
  ready.info.state = State::kReady;
  GB_CO_TRYV(co_await save(ready));
  for (const auto& [id, execution] : executions_) execution->detach();
  link_.reset();
  GB_CO_TRY(waiting_channel_, co_await run_blocking(pool(), [this] { return context_.runtime->adopt(document_.record); }));
  GB_CO_TRYV(co_await stop_processes());
  const auto used = co_await run_blocking(pool(), [this] { return context_.runtime->usage(document_.record); });
  if (used) document_.unowned_cpu_us = used->cpu_us;
  if (end_wanted_) co_return fail(ended_error());
  document_.info.state = State::kReady;
  watch_death_once();
  co_return Result<void>();
}

Async<void> Sandbox::claim(SandboxInfo wanted, Deadline deadline, Clock::time_point began) {
  const auto self = shared_from_this();
  wanted.id = info().id;
  wanted.started_from = "pool";
  wanted.link = info().link;
  const bool is_other_user = wanted.user != info().user;
  document_.info = std::move(wanted);
  starting_ = true;
  auto claimed = co_await meet_owner(is_other_user, deadline);
  const bool is_fit = claimed || claimed.error().code == Code::kUserUnknown;
  if (claimed) claimed = co_await become_ready(began);
  starting_ = false;
  changed_.notify();
  if (claimed) co_return claimed;
  if (!is_fit && !(end_wanted_ && end_wanted_->first == "killed")) {
    document_.info.tenant.clear();
    document_.info.idempotency_key.clear();
    co_return claimed;  // at once: who waits for the same call must find the one that takes its place
  }
  co_await end("start_failed", claimed.error().message, after(kEndWait));
  co_return claimed;
}

// All that a cold start tells the agent is told now: environment, user, limits, the time, and entropy of this moment.
// The link let nothing pass until now, and nothing but the agent, and what waits for an owner, runs before his policy is in force.
Async<void> Sandbox::meet_owner(bool is_other_user, Deadline deadline) {
  std::optional<Beside> policy;
  if (info().network) policy.emplace(context_.execution.executor, "sandbox.policy", networking_->set_policy(*info().network));
  const auto known = co_await take_over();
  if (policy) GB_CO_TRYV(co_await policy->join());
  if (!known) co_return fail(known.error());
  document_.info.frozen = false;
  awake_since_ = Clock::now();
  const auto runs = [&](const auto& entry) {
    return std::ranges::any_of(*known, [&](const auto& k) { return k.id == entry.first && !k.exited; });
  };
  if (known->size() != executions_.size()) co_return fail(Code::kAgentProtocol, "the agent of a new sandbox knows other executions");
  if (!std::ranges::all_of(executions_, runs)) co_return fail(Code::kSandboxIo, "what was started in it has ended");
  hand_over(*known);
  if (info().network) GB_CO_TRYV(co_await networking_->write_package_files(link_, *info().network));
  if (is_other_user) GB_CO_TRYV(co_await check_user(deadline));  // of the template's own it is known
  co_return Result<void>();
}

void Sandbox::hand_over(const std::vector<codec::AgentExecution>& known) {
  resume_executions(known);
  for (const auto& [id, execution] : executions_) {
    execution->begin_at(info().created_at);
    spawn(context_.execution.executor, "execution.record", execution->note_running());
  }
}

}  // namespace glovebox::sandbox
