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
constexpr Millis kStopLook{10}, kStopPatience{5'000};

metrics::Labels label_of(const PoolTarget& target) {
  return {{"template", target.template_name}, {"runtime", std::string(runtime::tier_name(target.tier))}, {"network", target.network.value_or(false) ? "yes" : "no"}};
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
  std::vector<Box> ready;     // oldest first
  bool is_starting = false, is_stopped = false, is_running = false;
  uint64_t claimed = 0, misses = 0;
  double refill_ms = 0;  // of the last start
  Clock::time_point last_claim = Clock::time_point::min(), wanted_since = Clock::time_point::min();
  Demand demand;
  Notifier changed;

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
  metrics::registry().gauge("glovebox_pool_ready", "Sandboxes of the pool that can be claimed.", std::move(ready));
}

Pool::~Pool() { metrics::registry().gauge("glovebox_pool_ready", "Sandboxes of the pool that can be claimed.", nullptr); }

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
    while (shelf->is_running && Clock::now() < patience) co_await sleep_for(kStopLook);
    for (const Box& box : std::exchange(shelf->ready, {})) co_await host_.discard(box);
  }
}

Pool::Box Pool::take(const Class& wanted) {
  for (const auto& shelf : shelves_) {
    if (!shelf->kept || !(*shelf->kept == wanted)) continue;
    std::erase_if(shelf->ready, [](const Box& box) { return !box->can_be_claimed(); });
    const auto now = Clock::now();
    if (shelf->last_claim < now - kLongestRest) shelf->wanted_since = now;
    shelf->last_claim = now;
    shelf->demand.note(now);
    shelf->changed.notify();
    if (shelf->ready.empty()) {
      ++shelf->misses;
      metrics::registry().counter("glovebox_pool_misses_total", "Creates that found no ready sandbox in their pool.", label_of(shelf->target)).add();
      return nullptr;
    }
    ++shelf->claimed;
    metrics::registry().counter("glovebox_pool_claims_total", "Creates that took a ready sandbox.", label_of(shelf->target)).add();
    const Box box = shelf->ready.front();
    shelf->ready.erase(shelf->ready.begin());
    return box;
  }
  return nullptr;
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
    state.starting = shelf->is_starting ? 1 : 0;
    state.claimed = shelf->claimed;
    state.misses = shelf->misses;
    state.refill_ms = shelf->refill_ms;
    out.push_back(std::move(state));
  }
  return out;
}

Awaitable<void> Pool::run(std::shared_ptr<Shelf> shelf, Host host) {
  while (!shelf->is_stopped) {
    const auto now = Clock::now();
    const auto rest = std::min(shelf->last_claim + kRefillAfterClaim, shelf->wanted_since + kLongestRest);
    const bool is_claimed = shelf->last_claim != Clock::time_point::min();
    if (is_claimed && now < rest) {
      co_await sleep_until(rest);
    } else if (!co_await tend(*shelf, host) && !shelf->is_stopped) {
      co_await shelf->changed.wait_until(after(kLook));
    }
  }
  shelf->is_running = false;
}

// Throws out what died or is of an earlier version, and starts one if one is missing. True when there may be more to do.
Awaitable<bool> Pool::tend(Shelf& shelf, const Host& host) {
  auto document = host.plan(shelf.target);
  shelf.kept.reset();
  if (document) shelf.kept = Class{document->info.template_version, shelf.target.tier, document->info.limits, document->info.network != nullptr};
  std::vector<Box> stale;
  std::erase_if(shelf.ready, [&](const Box& box) {
    const bool fits = box->can_be_claimed() && shelf.kept && box->info().template_version == shelf.kept->template_version;
    if (!fits) stale.push_back(box);
    return !fits;
  });
  const size_t wanted = shelf.wanted();
  while (shelf.ready.size() > wanted) {  // fewer were wanted lately
    stale.push_back(shelf.ready.front());
    shelf.ready.erase(shelf.ready.begin());
  }
  for (const Box& box : stale) co_await host.discard(box);
  if (!document || shelf.is_stopped || shelf.ready.size() >= wanted) co_return false;
  if (shelf.ready.size() >= shelf.target.count && !host.has_room()) co_return false;
  shelf.is_starting = true;
  const auto began = Clock::now();
  auto started = co_await host.start(std::move(*document));
  shelf.is_starting = false;
  if (!started) {
    log::warn("pool.start_failed", {{"runtime", runtime::tier_name(shelf.target.tier)}, {"message", started.error().message}});
    const Deadline again = after(kFailureRest);
    while (!shelf.is_stopped && Clock::now() < again) co_await shelf.changed.wait_until(again);
    co_return true;
  }
  const std::chrono::duration<double> took = Clock::now() - began;
  shelf.refill_ms = took.count() * 1000;
  metrics::registry().histogram("glovebox_pool_refill_seconds", "Starting a sandbox for the pool.", label_of(shelf.target)).observe(took.count());
  shelf.ready.push_back(std::move(*started));
  co_return true;
}

}  // namespace glovebox::sandbox
