// SPDX-License-Identifier: Apache-2.0
// Sandboxes of the pool: started without an owner, claimed by one.
#include "sandbox/beside.h"
#include "sandbox/sandbox.h"

namespace glovebox::sandbox {
namespace {

constexpr Millis kEndWait{30'000};

}  // namespace

bool Sandbox::can_be_claimed() const { return is_pooled() && info().state == State::kReady && info().frozen && !end_wanted_; }

Async<void> Sandbox::start_pooled(Deadline deadline) {
  const auto self = shared_from_this();
  starting_ = true;
  auto started = co_await start_engine(deadline);
  if (started && info().network) started = co_await networking_->learn_release(link_);
  if (started) started = co_await wait_for_owner();
  starting_ = false;
  changed_.notify();
  if (!started) co_await end("start_failed", started.error().message, after(kEndWait));
  co_return started;
}

// Its agent is spoken to again when it has an owner, as after a restart of the daemon.
Async<void> Sandbox::wait_for_owner() {
  if (end_wanted_) co_return fail(ended_error());
  codec::SandboxDocument ready = document_;
  ready.info.state = State::kReady;
  GB_CO_TRYV(co_await save(ready));
  link_.reset();
  GB_CO_TRY(waiting_channel_, co_await run_blocking(pool(), [this] { return context_.runtime->adopt(document_.record); }));
  GB_CO_TRYV(co_await stop_processes());
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
  if (!is_fit && !end_wanted_) {
    document_.info.tenant.clear();
    document_.info.idempotency_key.clear();
  }
  co_await end("start_failed", claimed.error().message, after(kEndWait));
  co_return claimed;
}

// All that a cold start tells the agent is told now: environment, user, limits, the time, and entropy of this moment.
// The link let nothing pass until now, and nothing but the agent runs before the owner's policy is in force.
Async<void> Sandbox::meet_owner(bool is_other_user, Deadline deadline) {
  std::optional<Beside> policy;
  if (info().network) policy.emplace(context_.execution.executor, "sandbox.policy", networking_->set_policy(*info().network));
  const auto known = co_await take_over();
  if (policy) GB_CO_TRYV(co_await policy->join());
  if (!known) co_return fail(known.error());
  document_.info.frozen = false;
  awake_since_ = Clock::now();
  if (!known->empty()) co_return fail(Code::kAgentProtocol, "the agent of a new sandbox knows executions");
  if (info().network) GB_CO_TRYV(co_await networking_->write_package_files(link_, *info().network));
  if (is_other_user) GB_CO_TRYV(co_await check_user(deadline));  // of the template's own it is known
  co_return Result<void>();
}

}  // namespace glovebox::sandbox
