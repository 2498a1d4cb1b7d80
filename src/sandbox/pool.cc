// SPDX-License-Identifier: Apache-2.0
#include "sandbox/pool.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/log.h"
#include "metrics/metrics.h"
#include "sandbox/demand.h"

namespace glovebox::sandbox {
namespace {

constexpr Millis kLook{5'000};           // at what may have changed without a word: the template, a sandbox that died
constexpr Millis kRefillAfterClaim{100};  // a burst of claims has the host for itself …
constexpr Millis kLongestRest{1'000};     // … for so long at most
constexpr Millis kFailureRest{10'000};
constexpr Millis kWarmPatience{90'000};
constexpr Millis kColdAfterFailure{60'000};  // what cannot be warmed is kept as it starts, and tried again
constexpr Millis kStopLook{10}, kStopPatience{5'000};

metrics::Labels label_of(const PoolTarget& target) {
  return {{"template", target.template_name}, {"runtime", std::string(runtime::tier_name(target.tier))}, {"network", target.network.value_or(false) ? "yes" : "no"}};
}

void set_gauges(std::function<metrics::Registry::Samples()> ready, std::function<metrics::Registry::Samples()> warm) {
  metrics::registry().gauge("glovebox_pool_ready", "Sandboxes of the pool that can be claimed.", std::move(ready));
  metrics::registry().gauge("glovebox_pool_warm", "Of these, the ones with kernels that are up.", std::move(warm));
}

}  // namespace

bool Pool::Class::operator==(const Class& other) const {
  const auto fields = [](const Class& c) {
    const runtime::Limits& l = c.limits;
    return std::tie(c.template_version, c.tier, c.has_link, l.cpus, l.memory_bytes, l.disk_bytes, l.inodes, l.processes, l.open_files);
  };
  return fields(*this) == fields(other);
}

// The sandboxes of one target.
struct Pool::Shelf {
  PoolTarget target;
  std::optional<Class> kept;  // of the template's present version; empty until the first look, and while it cannot be planned
  std::string user;           // the template's
  std::vector<Box> ready;     // oldest first
  Box warming;                // between its start and its rest
  Clock::time_point warm_from = Clock::time_point::min();  // before, none is warmed
  bool warm_failed = false;
  bool is_starting = false, is_stopped = false, is_running = false;
  uint64_t claimed = 0, misses = 0;
  double refill_ms = 0;  // of the last start
  Clock::time_point last_claim = Clock::time_point::min(), wanted_since = Clock::time_point::min();
  Demand demand;
  Notifier changed;

  // What died stays until tend() discards it: nobody else would forget it.
  std::vector<Box>::iterator oldest() {
    return std::ranges::find_if(ready, [](const Box& box) { return box->can_be_claimed(); });
  }
  size_t count_warm() const {
    return static_cast<size_t>(std::ranges::count_if(ready, [](const Box& box) { return box->can_be_claimed() && box->is_warm(); }));
  }
  size_t wanted() { return std::clamp(demand.at_once(Clock::now()), target.count, std::max(target.count, target.max)); }
};

Pool::Pool(std::vector<PoolTarget> targets, Host host) : host_(std::move(host)) {
  for (PoolTarget& target : targets) {
    if (target.count == 0 && target.max == 0) continue;
    shelves_.push_back(std::make_shared<Shelf>());
    shelves_.back()->target = std::move(target);
  }
  auto ready = [shelves = shelves_] {
    std::map<metrics::Labels, double> counts;  // size classes of one template and runtime together
    for (const auto& shelf : shelves) counts[label_of(shelf->target)] += static_cast<double>(shelf->ready.size());
    return metrics::Registry::Samples(counts.begin(), counts.end());
  };
  auto warm = [shelves = shelves_] {
    std::map<metrics::Labels, double> counts;
    for (const auto& shelf : shelves) {
      if (!shelf->target.warm.empty()) counts[label_of(shelf->target)] += static_cast<double>(shelf->count_warm());
    }
    return metrics::Registry::Samples(counts.begin(), counts.end());
  };
  set_gauges(std::move(ready), std::move(warm));
}

Pool::~Pool() { set_gauges(nullptr, nullptr); }

void Pool::start() {
  for (const auto& shelf : shelves_) {
    shelf->is_running = true;
    spawn(host_.executor, "pool.run", run(shelf, host_));
  }
}

Awaitable<void> Pool::stop() {
  for (const auto& shelf : shelves_) {
    shelf->is_stopped = true;
    shelf->changed.notify();
  }
  // A start that takes longer is left to the next daemon, which removes what it made.
  const Deadline patience = after(kStopPatience);
  for (const auto& shelf : std::vector(shelves_)) {
    if (const Box box = shelf->warming) co_await host_.discard(box);
    while (shelf->is_running && Clock::now() < patience) co_await sleep_for(kStopLook);
    for (const Box& box : std::exchange(shelf->ready, {})) co_await host_.discard(box);
  }
}

// Of several that would do, one that has any.
Pool::Box Pool::take(const Class& wanted, const std::string& user) {
  const auto fits = [&](const ShelfPtr& shelf) {
    return shelf->kept && *shelf->kept == wanted && (shelf->target.warm.empty() || shelf->user == user);
  };
  ShelfPtr chosen;
  for (const auto& shelf : shelves_) {
    if (!fits(shelf)) continue;
    if (!chosen || (chosen->oldest() == chosen->ready.end() && shelf->oldest() != shelf->ready.end())) chosen = shelf;
  }
  if (!chosen) return nullptr;
  const auto now = Clock::now();
  if (chosen->last_claim < now - kLongestRest) chosen->wanted_since = now;
  chosen->last_claim = now;
  chosen->demand.note(now);
  chosen->changed.notify();
  const auto oldest = chosen->oldest();
  if (oldest == chosen->ready.end()) {
    ++chosen->misses;
    metrics::registry().counter("glovebox_pool_misses_total", "Creates that found no ready sandbox in their pool.", label_of(chosen->target)).add();
    return nullptr;
  }
  ++chosen->claimed;
  metrics::registry().counter("glovebox_pool_claims_total", "Creates that took a ready sandbox.", label_of(chosen->target)).add();
  const Box box = *oldest;
  chosen->ready.erase(oldest);
  return box;
}

std::vector<PoolState> Pool::state() const {
  std::vector<PoolState> out;
  for (const auto& shelf : shelves_) {
    PoolState state;
    state.target = shelf->target;
    state.target.count = shelf->wanted();
    if (shelf->kept) {
      state.template_version = shelf->kept->template_version;
      state.limits = shelf->kept->limits;
    }
    state.ready = static_cast<size_t>(std::ranges::count_if(shelf->ready, [](const Box& box) { return box->can_be_claimed(); }));
    state.warm = shelf->count_warm();
    state.starting = shelf->is_starting ? 1 : 0;
    state.claimed = shelf->claimed;
    state.misses = shelf->misses;
    state.refill_ms = shelf->refill_ms;
    out.push_back(std::move(state));
  }
  return out;
}

Awaitable<void> Pool::run(ShelfPtr shelf, Host host) {
  while (!shelf->is_stopped) {
    const auto now = Clock::now();
    const auto rest = std::min(shelf->last_claim + kRefillAfterClaim, shelf->wanted_since + kLongestRest);
    const bool is_claimed = shelf->last_claim != Clock::time_point::min();
    if (is_claimed && now < rest) {
      co_await sleep_until(rest);
    } else if (!co_await tend(shelf, host) && !shelf->is_stopped) {
      co_await shelf->changed.wait_until(after(kLook));
    }
  }
  shelf->is_running = false;
}

// Throws out what died or is of an earlier version, and starts one if one is missing. True when there may be more to do.
Awaitable<bool> Pool::tend(ShelfPtr shelf, const Host& host) {
  auto document = host.plan(shelf->target);
  shelf->kept.reset();
  if (document) {
    shelf->kept = Class{document->info.template_version, shelf->target.tier, document->info.limits, document->info.network != nullptr};
    shelf->user = document->info.user;
  }
  std::vector<Box> stale;
  std::erase_if(shelf->ready, [&](const Box& box) {
    const bool fits = box->can_be_claimed() && shelf->kept && box->info().template_version == shelf->kept->template_version;
    if (!fits) stale.push_back(box);
    return !fits;
  });
  const size_t wanted = shelf->wanted();
  while (shelf->ready.size() > wanted) {  // fewer were wanted lately
    stale.push_back(shelf->ready.front());
    shelf->ready.erase(shelf->ready.begin());
  }
  for (const Box& box : stale) co_await host.discard(box);
  if (!document || shelf->is_stopped || shelf->ready.size() >= wanted) co_return false;
  if (shelf->ready.size() >= shelf->target.count && !host.has_room()) co_return false;
  shelf->is_starting = true;
  const auto began = Clock::now();
  auto made = co_await make_one(shelf, host, std::move(*document));
  shelf->is_starting = false;
  if (!made) {
    if (shelf->is_stopped || std::exchange(shelf->warm_failed, false)) co_return true;  // the next one is left as it starts
    log::warn("pool.start_failed", {{"runtime", runtime::tier_name(shelf->target.tier)}, {"message", made.error().message}});
    const Deadline again = after(kFailureRest);
    while (!shelf->is_stopped && Clock::now() < again) co_await shelf->changed.wait_until(again);
    co_return true;
  }
  const std::chrono::duration<double> took = Clock::now() - began;
  shelf->refill_ms = took.count() * 1000;
  metrics::registry().histogram("glovebox_pool_refill_seconds", "Starting a sandbox for the pool.", label_of(shelf->target)).observe(took.count());
  shelf->ready.push_back(std::move(*made));
  co_return true;
}

Async<Pool::Box> Pool::make_one(ShelfPtr shelf, const Host& host, codec::SandboxDocument document) {
  GB_CO_TRY(const Box box, co_await host.start(std::move(document)));
  const bool warms = !shelf->target.warm.empty() && !shelf->is_stopped && Clock::now() >= shelf->warm_from;
  Result<void> made;
  if (warms) made = co_await warm(shelf, host, box);
  if (made) made = co_await host.rest(box);
  if (made) co_return box;
  co_await host.discard(box);
  co_return fail(made.error());
}

Async<void> Pool::warm(ShelfPtr shelf, const Host& host, Box box) {
  shelf->warming = box;
  spawn(host.executor, "pool.limit_warming", limit_warming(shelf, host, box));
  auto warmed = co_await host.warm(box, shelf->target.warm);
  shelf->warming.reset();
  shelf->changed.notify();
  if (warmed || shelf->is_stopped) co_return warmed;
  shelf->warm_failed = true;
  shelf->warm_from = after(kColdAfterFailure);
  log::warn("pool.warm_failed", {{"template", shelf->target.template_name}, {"runtime", runtime::tier_name(shelf->target.tier)}, {"message", warmed.error().message}});
  co_return warmed;
}

// What hangs in it goes with it.
Awaitable<void> Pool::limit_warming(ShelfPtr shelf, Host host, Box box) {
  const Deadline deadline = after(kWarmPatience);
  while (shelf->warming == box && Clock::now() < deadline) co_await shelf->changed.wait_until(deadline);
  if (shelf->warming == box) co_await host.discard(std::move(box));
}

}  // namespace glovebox::sandbox
