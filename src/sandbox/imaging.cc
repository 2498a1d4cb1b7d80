// SPDX-License-Identifier: Apache-2.0
// Images of a sandbox: written while it goes on, laid down as one and taken up again.
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "sandbox/image_files.h"
#include "sandbox/sandbox.h"
#include "sys/files.h"

namespace glovebox::sandbox {
namespace {

using runtime::Kept;
using Afterwards = runtime::Runtime::Afterwards;

constexpr Millis kFirstRetry{50}, kLastRetry{10'000};
constexpr std::string_view kOutputPrefix = "output-";

// The output that the daemon has of executions goes with the image.
Result<void> copy_outputs(const std::string& spool, const std::vector<ExecInfo>& executions, const std::string& directory) {
  for (const auto& execution : executions) {
    for (const char* suffix : {".out", ".idx"}) {
      const std::string name = execution.id + suffix;
      if (sys::exists(spool + "/" + name)) GB_TRYV(sys::copy_sparse(spool + "/" + name, directory + "/" + std::string(kOutputPrefix) + name));
    }
  }
  return {};
}

Result<void> take_outputs(const std::string& directory, const std::string& spool) {
  for (const auto& name : sys::list_directory(directory)) {
    if (!name.starts_with(kOutputPrefix)) continue;
    GB_TRYV(sys::make_directories(spool, 0700));
    GB_TRYV(sys::copy_sparse(directory + "/" + name, spool + "/" + name.substr(kOutputPrefix.size())));
  }
  return {};
}

}  // namespace

std::string Sandbox::own_image_directory() const { return config().data_dir + "/hibernated/" + info().id; }

Result<void> Sandbox::check_keeps(std::optional<Kept> required) const {
  if (required != Kept::kMemoryAndFiles || keeps_memory()) return {};
  return fail(Code::kUnsupported, "the runtime " + std::string(tier_name(info().tier)) + " keeps files only, and memory was asked for",
              {{"runtime", std::string(tier_name(info().tier))}, {"kept", std::string(runtime::kept_name(Kept::kFiles))}});
}

Result<void> Sandbox::check_can_be_copied() const {
  if (!keeps_memory() || info().volumes.empty()) return {};
  return fail(Code::kUnsupported, "the runtime " + std::string(tier_name(info().tier)) + " cannot copy the memory of a sandbox with volumes",
              {{"runtime", std::string(tier_name(info().tier))}});
}

// ---- Writing one ----

Async<Sandbox::Written> Sandbox::write_image(std::string directory, Deadline deadline) {
  const auto self = shared_from_this();
  Lease lease;
  while (true) {
    GB_CO_TRYV(co_await wait_held());
    GB_CO_TRYV(co_await wait_settled());
    if (freezing_ || thawing_) {  // the engine freezes, or thaws, for itself
      co_await changed_.wait();
      continue;
    }
    if (info().state == State::kPaused || !keeps_memory()) break;
    GB_CO_TRY(lease, co_await use());
    if (info().state == State::kReady && !pausing_ && !imaging_) break;
    lease = Lease();
  }
  imaging_ = true;
  auto written = is_hibernated() ? co_await link_own_image(directory) : co_await write_image_now(directory, deadline);
  imaging_ = false;
  changed_.notify();
  co_return written;
}

Async<Sandbox::Written> Sandbox::link_own_image(std::string directory) {
  Written written;
  written.content = document_.image->content;
  GB_CO_TRYV(co_await run_blocking(*context_.execution.pool, [&]() -> Result<void> {
    GB_TRYV(check_image(document_.image->directory, document_.image->content.parts, Reading::kIfChanged));
    return link_image(document_.image->directory, directory);
  }));
  written.executions = unended();
  co_return written;
}

// What is paused runs for as long as its engine writes.
Async<Sandbox::Written> Sandbox::write_image_now(std::string directory, Deadline deadline) {
  auto* runtime = context_.runtime;
  if (!keeps_memory()) {
    Written written;
    GB_CO_TRY(written.content, co_await run_blocking(*context_.execution.pool, [&] {
      return runtime->snapshot(document_.record, directory, Afterwards::kGoesOn, deadline);
    }));
    co_return written;
  }
  const bool stood_still = info().frozen;
  if (stood_still) GB_CO_TRYV(co_await run_for_a_moment());
  const auto held_since = Clock::now();
  auto written = co_await hold_and_write(directory, deadline);
  auto stall = co_await link_->go_on(after(config().patience.answer));
  // A machine's clock stood still with it, and its agent held everything from the beginning.
  if (stall && info().tier == runtime::Tier::kMicrovm) *stall = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - held_since);
  if (written && stall) written->content.stall = std::max(written->content.stall, *stall);
  if (stood_still) (void)co_await stop_processes();
  if (written && !stall) co_return fail(stall.error());
  co_return written;
}

// Whatever it returns, the agent may be holding still.
Async<Sandbox::Written> Sandbox::hold_and_write(std::string directory, Deadline deadline) {
  auto* runtime = context_.runtime;
  for (const auto& [id, execution] : std::map(executions_)) co_await execution->settle_output();
  GB_CO_TRYV(co_await link_->hold_still(after(config().patience.answer)));
  Written written;
  written.executions = unended();
  const std::string spool = config().data_dir + "/spool/" + info().id;
  GB_CO_TRY(written.content, co_await run_blocking(*context_.execution.pool, [&]() -> Result<runtime::SnapshotImage> {
    GB_TRYV(copy_outputs(spool, written.executions, directory));
    return runtime->snapshot(document_.record, directory, Afterwards::kGoesOn, deadline);
  }));
  co_return written;
}

Async<void> Sandbox::run_for_a_moment() {
  if (!connected_) co_return co_await reconnect();
  auto thawed = co_await run_blocking(*context_.execution.pool, [this] { return context_.runtime->thaw(document_.record); });
  if (thawed) link_->touch();
  co_return thawed;
}

std::vector<ExecInfo> Sandbox::unended() const {
  std::vector<ExecInfo> out;
  for (const auto& [id, execution] : executions_) {
    if (!execution->ended()) out.push_back(execution->info());
  }
  return out;
}

// ---- Laying it down ----

Async<void> Sandbox::hibernate(std::string cause, bool insists, std::optional<Kept> required) {
  const auto self = shared_from_this();
  GB_CO_TRYV(check_keeps(required));
  GB_CO_TRYV(check_can_be_copied());
  GB_CO_TRYV(co_await wait_held());
  GB_CO_TRYV(co_await wait_settled());
  if (is_hibernated()) co_return Result<void>();
  pausing_ = true;
  auto done = co_await enter_hibernation(std::move(cause), insists);
  pausing_ = false;
  changed_.notify();
  co_return done;
}

// A daemon that dies before the image is recorded leaves a sandbox that runs or stands still; after that, one that is taken up from
// the image.
Async<void> Sandbox::enter_hibernation(std::string cause, bool insists) {
  GB_CO_TRYV(co_await wait_calls(insists));
  codec::StoredImage image;
  image.directory = own_image_directory();
  auto content = co_await write_last_image(image.directory);
  if (!content) {
    co_await give_up_image();
    co_return fail(content.error());
  }
  image.content = std::move(*content);
  const Paused paused{std::chrono::system_clock::now(), cause, true, image.content.kept};
  auto laid_down = co_await lay_down(std::move(image), paused, "only its files were kept when it was hibernated");
  // It is an idle one now, which the next call thaws; its agent finds the word to go on then.
  if (!laid_down && keeps_memory() && link_) (void)co_await link_->go_on(Clock::now());
  if (!laid_down) {
    co_await give_up_image();
    co_return laid_down;
  }
  auto sealed = co_await run_blocking(*context_.execution.pool, [&] { return seal_image(own_image_directory()); });
  if (sealed && document_.image) document_.image->content.parts = std::move(*sealed);
  if (sealed && !end_wanted_) sealed = (co_await save(document_)).transform([] { return std::vector<runtime::SnapshotPart>(); });
  if (!sealed) log::warn("sandbox.image_not_sealed", {{"sandbox", info().id}, {"message", sealed.error().message}});
  metrics::registry().counter("glovebox_hibernations_total", "Sandboxes whose memory was freed while paused, by what caused it.", {{"cause", cause}}).add();
  log::info("sandbox.hibernated", {{"sandbox", info().id}, {"cause", cause}, {"kept", runtime::kept_name(paused.kept)}});
  co_return Result<void>();
}

// What was written of it would take room for as long as the sandbox lives, and a full disk may be why there is no more of it.
Awaitable<void> Sandbox::give_up_image() {
  if (end_wanted_ || is_hibernated()) co_return;
  auto removed = co_await run_blocking(pool(), [directory = own_image_directory()] { return remove_image(directory); });
  if (!removed) log::warn("sandbox.image_not_removed", {{"sandbox", info().id}, {"message", removed.error().message}});
}

// It stands still afterwards, or is as it was.
Async<runtime::SnapshotImage> Sandbox::write_last_image(std::string directory) {
  auto* runtime = context_.runtime;
  const Deadline deadline = after(config().start_timeout);
  const bool stood_still = info().frozen;
  imaging_ = true;
  Result<Written> written;
  const auto made = co_await run_blocking(*context_.execution.pool, [&] { return make_image_directory(directory); });
  if (!made || end_wanted_) {
    written = made ? fail(ended_error()) : fail(made.error());
  } else if (!keeps_memory()) {
    auto content = co_await run_blocking(*context_.execution.pool, [&] {
      return runtime->snapshot(document_.record, directory, Afterwards::kIsOver, deadline);
    });
    if (content) document_.info.frozen = true;
    written = content ? Result<Written>(Written{*content, {}}) : Result<Written>(fail(content.error()));
  } else {
    auto runs = stood_still ? co_await run_for_a_moment() : Result<void>();
    written = runs ? co_await hold_and_write(directory, deadline) : Result<Written>(fail(runs.error()));
    if (written && !end_wanted_) {
      auto stopped = co_await stop_processes();
      if (!stopped) written = fail(stopped.error());
    }
    if (!written && runs) (void)co_await link_->go_on(after(config().patience.answer));
    if (!written && stood_still) (void)co_await stop_processes();
  }
  imaging_ = false;
  changed_.notify();
  if (!written) co_return fail(written.error());
  co_return std::move(written->content);
}

// From here on it goes on from the image: recorded first, then its processes end.
Async<void> Sandbox::lay_down(codec::StoredImage image, Paused paused, std::string why_executions_end) {
  codec::SandboxDocument resting = document_;
  resting.info.state = State::kPaused;
  resting.info.paused = std::move(paused);
  resting.info.link.reset();
  const bool go_on = image.is_own && image.content.kept == Kept::kMemoryAndFiles;
  resting.image = std::move(image);
  GB_CO_TRYV(co_await save(resting));
  GB_CO_TRYV(check_usable());
  document_ = std::move(resting);
  document_.info.frozen = true;
  co_await drop_engine(go_on, std::move(why_executions_end));
  co_return check_usable();
}

Awaitable<void> Sandbox::drop_engine(bool executions_go_on, std::string why_executions_end) {
  resting_ = true;
  for (const auto& [id, execution] : executions_) {
    if (executions_go_on) {
      execution->detach();
    } else {
      execution->finish_without_agent("sandbox_ended", why_executions_end);
    }
  }
  if (link_) link_->drop(Error{Code::kSandboxEnded, "the sandbox was laid down", {{"reason", "hibernated"}}});
  link_.reset();
  connected_ = false;
  seen_oom_kills_ = 0;
  co_await remove_engine();
  while (death_is_watched_ && !end_wanted_) co_await changed_.wait();
  death_fd_.reset();
  networking_->release();
  document_.info.link.reset();
  resting_ = false;
  changed_.notify();
}

Awaitable<void> Sandbox::remove_engine() {
  for (Millis pause = kFirstRetry;; pause = std::min(pause * 2, kLastRetry)) {
    auto removed = co_await run_blocking(*context_.execution.pool, [this]() -> Result<void> {
      GB_TRYV(context_.runtime->destroy(document_.record));
      const std::string& directory = document_.record.directory;
      if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) return fail_errno(directory);
      return {};
    });
    if (removed) co_return;
    log::error("sandbox.destroy_failed", {{"sandbox", info().id}, {"message", removed.error().message}});
    co_await sleep_for(pause);
  }
}

// ---- Taking it up again ----

// When it cannot be, it stays what it is.
Async<void> Sandbox::leave_hibernation() {
  const auto began = Clock::now();
  resuming_ = true;
  auto resumed = co_await start_from_image(after(config().start_timeout));
  resuming_ = false;
  if (resumed) {
    document_.info.frozen = false;
    awake_since_ = last_activity_ = Clock::now();
    watch_death_once();
    metrics::registry()
        .histogram("glovebox_restore_seconds", "Taking up a sandbox from its image.", runtime_label())
        .observe(std::chrono::duration<double>(Clock::now() - began).count());
  } else {
    log::warn("sandbox.resume_failed", {{"sandbox", info().id}, {"message", resumed.error().message}});
  }
  changed_.notify();
  co_return resumed;
}

// Its turn comes as that of any other start; until then it can end at once.
Async<void> Sandbox::start_from_image(Deadline deadline) {
  const auto place = co_await context_.starts->enter(deadline);
  if (end_wanted_) co_return fail(ended_error());
  if (!place) co_return fail(Code::kTimeout, "too many sandboxes start at once: this one's turn did not come in time");
  starting_ = true;
  auto started = co_await start_engine(deadline);
  if (started) started = co_await record_resumed();
  if (!started && !end_wanted_) co_await drop_engine(true, "");
  starting_ = false;
  co_return started;
}

Async<void> Sandbox::record_resumed() {
  if (end_wanted_) co_return fail(ended_error());
  codec::SandboxDocument ready = document_;
  ready.info.state = State::kReady;
  ready.info.paused.reset();
  ready.image.reset();
  renew_lifetime(&ready.info);
  GB_CO_TRYV(co_await save(ready));
  if (end_wanted_) co_return fail(ended_error());
  const bool is_own = document_.image && document_.image->is_own;
  document_ = std::move(ready);
  connected_ = true;
  image_hold_.reset();
  if (is_own) {
    auto removed = co_await run_blocking(*context_.execution.pool, [this] { return remove_image(own_image_directory()); });
    if (!removed) log::warn("sandbox.image_not_removed", {{"sandbox", info().id}, {"message", removed.error().message}});
  }
  metrics::registry().counter("glovebox_resumes_total", "Paused sandboxes that were resumed.", runtime_label()).add();
  co_return Result<void>();
}

// The executions that go on in the image, as far as the agent confirms them.
Async<void> Sandbox::adopt_executions(const std::vector<codec::AgentExecution>& known, const std::string& directory) {
  if (origin_ && !origin_->executions.empty()) {
    const std::string spool = config().data_dir + "/spool/" + info().id;
    GB_CO_TRYV(co_await run_blocking(*context_.execution.pool, [&] { return take_outputs(directory, spool); }));
    for (ExecInfo execution : std::exchange(origin_->executions, {})) {
      const bool is_known = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.id == execution.id; });
      if (!is_known || executions_.contains(execution.id)) continue;
      execution.sandbox_id = info().id;
      execution.idempotency_key.clear();  // it named a call to the source
      const std::string id = execution.id;
      restore_execution(std::move(execution));
      GB_CO_TRYV(co_await executions_.at(id)->record_running());
    }
  }
  resume_executions(known);
  co_return Result<void>();
}

// ---- Going back ----

// Its calls have a moment to end, and are cut off then: what they do would be undone anyway.
Async<void> Sandbox::reset(Origin origin, std::string snapshot) {
  const auto self = shared_from_this();
  GB_CO_TRYV(co_await wait_held());
  GB_CO_TRYV(co_await wait_settled());
  pausing_ = true;
  auto done = co_await go_back(std::move(origin), std::move(snapshot));
  pausing_ = false;
  changed_.notify();
  if (!done) co_return done;
  co_return co_await resume();
}

Async<void> Sandbox::go_back(Origin origin, std::string snapshot) {
  GB_CO_TRYV(co_await run_blocking(*context_.execution.pool, [&]() -> Result<void> {
    GB_TRYV(context_.runtime->check_needs(origin.image.content.needs));
    return check_image(origin.image.directory, origin.image.content.parts, Reading::kIfChanged);
  }));
  GB_CO_TRYV(co_await wait_calls(true));
  const bool had_own_image = is_hibernated();
  auto hold_before = std::exchange(image_hold_, std::move(origin.hold));
  const std::string snapshot_before = std::exchange(document_.info.snapshot_id, std::move(snapshot));
  const Paused paused{std::chrono::system_clock::now(), "call", true, origin.image.content.kept};
  origin_ = Origin{{}, std::move(origin.executions), {}};
  auto laid_down = co_await lay_down(std::move(origin.image), paused, "the sandbox was reset");
  if (!laid_down) {  // it goes on as it was
    image_hold_ = std::move(hold_before);
    document_.info.snapshot_id = snapshot_before;
    origin_.reset();
    co_return laid_down;
  }
  if (had_own_image) (void)co_await run_blocking(*context_.execution.pool, [this] { return remove_image(own_image_directory()); });
  co_return Result<void>();
}

}  // namespace glovebox::sandbox
