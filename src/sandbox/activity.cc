// SPDX-License-Identifier: Apache-2.0
// When a sandbox's processes run and when they stand still: freezing, pausing, and what its deadlines do.
#include <algorithm>

#include "base/log.h"
#include "sandbox/sandbox.h"

namespace glovebox::sandbox {
namespace {

constexpr Millis kStopRetry{10'000};

}  // namespace

Sandbox::Lease::Lease(std::shared_ptr<Sandbox> sandbox) : sandbox_(std::move(sandbox)) { ++sandbox_->leases_; }
Sandbox::Lease& Sandbox::Lease::operator=(Lease&& other) noexcept {
  std::swap(sandbox_, other.sandbox_);
  return *this;
}
Sandbox::Lease::~Lease() {
  if (!sandbox_) return;
  --sandbox_->leases_;
  sandbox_->last_activity_ = Clock::now();
  if (sandbox_->leases_ == 0 && sandbox_->pausing_) sandbox_->changed_.notify();
}

Result<void> Sandbox::check_usable() const {
  const State state = info().state;
  if ((state == State::kReady || state == State::kPaused) && !end_wanted_) return {};
  const std::string name(end_wanted_ && state != State::kEnded ? "ending" : state_name(state));
  std::map<std::string, std::string> details{{"state", name}};
  std::string message = "the sandbox is not ready: its state is " + name;
  if (info().ended) {
    details["reason"] = info().ended->reason;
    message += " (" + info().ended->reason + ")";
    return fail(Code::kSandboxEnded, message, std::move(details));
  }
  return fail(Code::kSandboxNotReady, message, std::move(details));
}

// A sandbox of an earlier daemon has its state from the start, and can be used a moment later.
Async<void> Sandbox::wait_held() {
  GB_CO_TRYV(check_usable());
  while (!held_) {
    co_await changed_.wait();
    GB_CO_TRYV(check_usable());
  }
  co_return Result<void>();
}

Async<void> Sandbox::wait_settled() {
  GB_CO_TRYV(check_usable());
  while (pausing_ || resuming_ || imaging_) {
    co_await changed_.wait();
    GB_CO_TRYV(check_usable());
  }
  co_return Result<void>();
}

Async<Sandbox::Lease> Sandbox::use() {
  const auto self = shared_from_this();
  if (warming_ && end_wanted_) co_return fail(ended_error());
  if (warming_) co_return Lease(self);
  GB_CO_TRYV(co_await wait_held());
  while (pausing_) {  // then it is resumed again for this call
    co_await changed_.wait();
    GB_CO_TRYV(check_usable());
  }
  Lease lease(self);
  while (!is_awake()) {
    if (freezing_ || thawing_ || resuming_ || imaging_) {
      co_await changed_.wait();
    } else {
      GB_CO_TRYV(co_await wake());
    }
    GB_CO_TRYV(check_usable());
  }
  co_return std::move(lease);
}

std::shared_ptr<channel::Link> Sandbox::awake_link() const {
  return check_usable() && connected_ && is_awake() ? link_ : nullptr;
}

std::optional<Clock::time_point> Sandbox::awake_since() const {
  return is_awake() ? std::optional(awake_since_) : std::nullopt;
}

// ---- Running again ----

Async<void> Sandbox::wake() {
  if (is_hibernated()) co_return co_await leave_hibernation();
  if (info().state == State::kPaused) GB_CO_TRYV(co_await leave_pause());
  const auto began = Clock::now();
  thawing_ = true;
  Result<void> awake;
  if (connected_) {
    awake = co_await run_blocking(*context_.execution.pool, [this] { return context_.runtime->thaw(document_.record); });
  } else {
    awake = co_await reconnect();  // an earlier daemon paused it: the agent has not heard of this one
  }
  thawing_ = false;
  if (awake) {
    document_.info.frozen = false;
    awake_since_ = Clock::now();
    link_->touch();
    metrics::registry()
        .histogram("glovebox_thaw_seconds", "Thawing a frozen or paused sandbox, paid by the call that found it so.", runtime_label())
        .observe(std::chrono::duration<double>(Clock::now() - began).count());
  }
  changed_.notify();
  if (!awake && !connected_) co_await end("host_lost", "it could not be taken over: " + awake.error().message, Deadline::max());
  co_return awake;
}

// Recorded before it happens: a daemon that dies in between leaves a ready sandbox, which the next one thaws.
Async<void> Sandbox::leave_pause() {
  resuming_ = true;
  codec::SandboxDocument ready = document_;
  ready.info.state = State::kReady;
  ready.info.paused.reset();
  renew_lifetime(&ready.info);
  auto saved = co_await save(ready);
  resuming_ = false;
  if (saved && !end_wanted_) {
    document_.info.state = State::kReady;
    document_.info.paused.reset();
    document_.info.expires_at = ready.info.expires_at;
    metrics::registry().counter("glovebox_resumes_total", "Paused sandboxes that were resumed.", runtime_label()).add();
  }
  changed_.notify();
  if (!saved) co_return saved;
  co_return check_usable();
}

// One that was paused at its end has its lifetime again.
void Sandbox::renew_lifetime(SandboxInfo* info) {
  const auto now = std::chrono::system_clock::now();
  const bool is_over = info->expires_at && *info->expires_at <= now;
  if (is_over && info->on_timeout != OnTimeout::kKill) info->expires_at = now + info->lifetime;
}

Async<void> Sandbox::resume() {
  const auto self = shared_from_this();
  GB_CO_TRYV(co_await wait_held());
  GB_CO_TRYV(co_await wait_settled());
  if (info().state == State::kPaused) GB_CO_TRYV(co_await use());
  co_return Result<void>();
}

// ---- Standing still ----

Async<void> Sandbox::stop_processes() {
  freezing_ = true;
  auto frozen = co_await run_blocking(*context_.execution.pool, [this] { return context_.runtime->freeze(document_.record); });
  freezing_ = false;
  document_.info.frozen = frozen.has_value();
  changed_.notify();
  co_return frozen;
}

Awaitable<void> Sandbox::freeze() {
  auto frozen = co_await stop_processes();
  if (frozen) {
    metrics::registry().counter("glovebox_freezes_total", "Idle sandboxes that were frozen.", runtime_label()).add();
  } else {
    log::warn("sandbox.freeze_failed", {{"sandbox", info().id}, {"message", frozen.error().message}});
    no_freeze_before_ = after(kStopRetry);
  }
}

Async<void> Sandbox::pause(std::string cause, bool insists) {
  const auto self = shared_from_this();
  GB_CO_TRYV(co_await wait_held());
  GB_CO_TRYV(co_await wait_settled());
  if (info().state == State::kPaused) co_return Result<void>();
  pausing_ = true;
  auto paused = co_await enter_pause(std::move(cause), insists);
  pausing_ = false;
  changed_.notify();
  co_return paused;
}

// New calls wait, and those under way get a moment to end.
Async<void> Sandbox::wait_calls(bool insists) {
  const Deadline patience = after(config().patience.pause);
  while (leases_ > 0 && Clock::now() < patience) {
    co_await changed_.wait_until(patience);
    GB_CO_TRYV(check_usable());
  }
  if (leases_ > 0 && !insists) {
    co_return fail(Code::kConflict, "calls are under way in the sandbox: pause it when they have ended",
                   {{"state", "busy"}, {"calls", std::to_string(leases_)}});
  }
  while (freezing_ || thawing_) {
    co_await changed_.wait();
    GB_CO_TRYV(check_usable());
  }
  co_return Result<void>();
}

// It stands still before that is recorded: a daemon that dies in between leaves a ready sandbox.
Async<void> Sandbox::enter_pause(std::string cause, bool insists) {
  GB_CO_TRYV(co_await wait_calls(insists));
  if (!info().frozen) GB_CO_TRYV(co_await stop_processes());
  GB_CO_TRYV(check_usable());
  codec::SandboxDocument paused = document_;
  paused.info.state = State::kPaused;
  paused.info.paused = Paused{std::chrono::system_clock::now(), cause};
  auto saved = co_await save(paused);
  GB_CO_TRYV(check_usable());
  if (!saved) co_return saved;  // it is an idle one now, which the next call thaws
  document_.info.state = State::kPaused;
  document_.info.paused = std::move(paused.info.paused);
  metrics::registry().counter("glovebox_pauses_total", "Sandboxes that were paused, by what caused it.", {{"cause", cause}}).add();
  log::info("sandbox.paused", {{"sandbox", info().id}, {"cause", cause}});
  co_return Result<void>();
}

metrics::Labels Sandbox::runtime_label() const { return {{"runtime", std::string(runtime::tier_name(info().tier))}}; }

// ---- Deadlines ----

Deadline Sandbox::lifetime_due() const {
  if (!info().expires_at) return Deadline::max();
  const auto left = *info().expires_at - std::chrono::system_clock::now();
  const Deadline due = Clock::now() + std::chrono::duration_cast<Clock::duration>(left);
  if (info().on_timeout == OnTimeout::kKill) return due;
  return info().state == State::kPaused ? Deadline::max() : std::max(due, no_pause_before_);
}

Deadline Sandbox::idle_due(Clock::time_point now) const {
  if (info().idle_timeout.count() == 0 || info().state == State::kPaused) return Deadline::max();
  const auto since = leases_ > 0 || running_executions_ > 0 ? now : last_activity_;
  return std::max(since + info().idle_timeout, no_pause_before_);
}

Deadline Sandbox::freeze_due(Clock::time_point now) const {
  if (config().freeze_after.count() == 0 || !is_awake() || pausing_ || imaging_) return Deadline::max();
  const auto since = is_busy() ? now : last_activity_;
  return std::max(since + config().freeze_after, no_freeze_before_);
}

// Asks the agent when it has been silent, and says when its answer is due, or the next question. A stopped or wedged agent would
// leave every caller waiting. What counts is a question that stays unanswered, not silence: this process may have been the one that
// stood still.
Deadline Sandbox::answer_due(Clock::time_point now) {
  if (!connected_ || !is_awake() || imaging_) return Deadline::max();
  const Patience& patience = config().patience;
  const auto heard = link_->last_heard();
  if (asked_at_ < heard && now >= heard + patience.ping_after) {
    asked_at_ = now;
    link_->ping();
  }
  return asked_at_ < heard ? heard + patience.ping_after : asked_at_ + (patience.dead_after - patience.ping_after);
}

Awaitable<void> Sandbox::time_out(std::string cause, std::string message) {
  if (info().on_timeout == OnTimeout::kKill) co_return co_await end(std::move(cause), std::move(message), Deadline::max());
  const bool to_disk = info().on_timeout == OnTimeout::kHibernate && check_can_be_copied();
  auto paused = to_disk ? co_await hibernate(cause, true, {}) : co_await pause(cause, true);
  if (paused || end_wanted_) co_return;
  log::warn("sandbox.pause_failed", {{"sandbox", info().id}, {"message", paused.error().message}});
  no_pause_before_ = after(kStopRetry);
}

// Wakes at the earliest moment at which something could be due, not at every activity.
Awaitable<void> Sandbox::watch_time() {
  const auto self = shared_from_this();
  while (!end_wanted_) {
    const auto now = Clock::now();
    const Deadline dead = answer_due(now), expires = lifetime_due(), idle = idle_due(now), freeze_at = freeze_due(now);
    if (now >= dead) {
      const auto seconds = config().patience.dead_after.count() / 1000;
      co_await end("crashed", "its agent has not answered for " + std::to_string(seconds) + " s", Deadline::max());
    } else if (now >= expires) {
      co_await time_out("lifetime", "its lifetime was over");
    } else if (now >= idle) {
      co_await time_out("idle", "nothing happened in it for its idle timeout");
    } else if (now >= freeze_at) {
      co_await freeze();
    } else {
      co_await changed_.wait_until(std::min({dead, expires, idle, freeze_at}));
    }
  }
}

}  // namespace glovebox::sandbox
