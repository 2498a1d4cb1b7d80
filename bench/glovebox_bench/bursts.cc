// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <mutex>
#include <thread>

#include "memory.h"
#include "tier_bench.h"

// Many sandboxes at once: how long they take to start, and what they cost while nobody uses them.
namespace glovebox::bench {
namespace {

using namespace std::chrono_literals;

// Engines at once in the peer's burst; the daemon's default is the same.
constexpr size_t kPeerWorkers = 4;
// Until every gVisor sandbox is frozen, and until the kernel has freed what earlier ones left.
constexpr auto kQuiet = 2s;

std::string peer_id(size_t i) {
  return "glovebox-bench-burst-" + std::to_string(100 + i);
}

void append(Samples& to, const Samples& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

void TierBench::weigh(const std::vector<pid_t>& processes, size_t sandboxes, double before_mib,
                      Burst* burst) {
  const double count = static_cast<double>(sandboxes);
  // First: reading what the processes hold takes memory itself.
  burst->available.push_back((before_mib - available_mib()) / count);
  burst->held.push_back(proportional_mib(processes) / count);
}

Async<void> TierBench::weigh_ours(std::vector<std::string> ids, double before_mib,
                                  Burst* burst) const {
  co_await sleep_for(kQuiet);
  burst->daemon.push_back(resident_mib(target_.daemon));
  weigh(processes_in_groups(ids), ids.size(), before_mib, burst);
  co_return Result<void>();
}

// From the start of the burst to each sandbox's readiness. The connections are there before, each
// caller has one.
Async<void> TierBench::burst_of_ours(size_t size, bool weighs, Burst* burst) {
  GB_CO_TRY(const auto callers, co_await connect(size));
  std::vector<std::string> ids(size);
  std::vector<std::function<Async<void>()>> creates, kills;
  if (weighs) co_await sleep_for(kQuiet);
  const double before_mib = available_mib();
  const auto start = Clock::now();
  const auto create = [&](size_t i) -> Async<void> {
    GB_CO_TRY(ids[i], co_await callers[i]->create(tier_));
    burst->each.push_back(ms_since(start));
    co_return Result<void>();
  };
  for (size_t i = 0; i < callers.size(); ++i) {
    creates.emplace_back([&create, i] { return create(i); });
    kills.emplace_back([&callers, &ids, i] { return callers[i]->kill(ids[i]); });
  }
  GB_CO_TRYV(co_await all(std::move(creates)));
  burst->walls.push_back(ms_since(start));
  if (weighs) GB_CO_TRYV(co_await weigh_ours(ids, before_mib, burst));
  GB_CO_TRYV(co_await all(std::move(kills)));
  co_return Result<void>();
}

Result<void> TierBench::create_theirs(Clock::time_point start, Samples* each) const {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  Result<void> result;
  const auto work = [&] {
    for (size_t i = next++; i < each->size(); i = next++) {
      auto created = peer_->create(peer_id(i));
      (*each)[i] = ms_since(start);
      peer_->pause(peer_id(i));
      const std::lock_guard lock(mutex);
      if (!created && result) result = std::move(created);
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 0; i < kPeerWorkers; ++i) workers.emplace_back(work);
  for (auto& worker : workers) worker.join();
  return result;
}

Result<void> TierBench::burst_of_theirs(size_t size, bool weighs, Burst* burst) const {
  Samples each(size);
  if (weighs) std::this_thread::sleep_for(kQuiet);
  const double before_mib = available_mib();
  const auto start = Clock::now();
  auto result = create_theirs(start, &each);
  burst->walls.push_back(ms_since(start));
  append(burst->each, each);
  if (weighs) {
    std::this_thread::sleep_for(kQuiet);
    weigh(descendants(), size, before_mib, burst);
  }
  for (size_t i = 0; i < size; ++i) {
    peer_->go_on(peer_id(i));
    auto removed = peer_->remove(peer_id(i));
    if (!removed && result) result = std::move(removed);
  }
  return result;
}

Async<void> TierBench::bursts(size_t count, size_t size, bool weighs) {
  Burst ours, theirs;
  for (size_t i = 0; i < count; ++i) {
    GB_CO_TRYV(co_await burst_of_ours(size, weighs, &ours));
    if (peer_ != nullptr) GB_CO_TRYV(burst_of_theirs(size, weighs, &theirs));
  }
  const std::string run = peer_ != nullptr ? peer_->create_name() : "";
  const std::string at_once = peer_ != nullptr ? run + ", 4 at once" : "";
  const std::string what = "burst of " + std::to_string(size) + " creates: ";
  report(what + "each until ready", "ms", ours.each, at_once, theirs.each);
  report(what + "all ready", "ms", ours.walls, at_once, theirs.walls);
  if (!weighs) co_return Result<void>();
  const std::string idle = std::to_string(size) + " idle sandboxes: ";
  report(idle + "held by the processes of one (PSS)", "MiB", ours.held, run, theirs.held);
  report(idle + "taken from the host by one (MemAvailable)", "MiB", ours.available, run,
         theirs.available);
  print(Row{tier_, idle + "the daemon's RSS", "MiB", ours.daemon, {}, {}, {}, "≤ 60 MiB"});
  co_return Result<void>();
}

}  // namespace glovebox::bench
