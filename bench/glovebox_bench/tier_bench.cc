// SPDX-License-Identifier: Apache-2.0
#include "tier_bench.h"

#include <mutex>
#include <thread>

namespace glovebox::bench {
namespace {

using namespace std::chrono_literals;

constexpr const char* kPeerBox = "glovebox-bench-box";
constexpr size_t kTheirExecsPerCaller = 6;
constexpr auto kIdle = 600ms;  // longer than the daemon's default quiet time

Awaitable<void> run_task(const std::function<Async<void>()>* task, Result<void>* result,
                         size_t* left, Notifier* done) {
  auto ended = co_await (*task)();
  if (!ended && *result) *result = std::move(ended);
  if (--*left == 0) done->notify();
}

}  // namespace

Async<void> all(std::vector<std::function<Async<void>()>> tasks) {
  Result<void> result;
  size_t left = tasks.size();
  Notifier done;
  const auto executor = co_await this_executor();
  for (const auto& task : tasks)
    spawn(executor, "bench.task", run_task(&task, &result, &left, &done));
  while (left > 0) co_await done.wait();
  co_return result;
}

void TierBench::report(std::string what, std::string unit, Samples ours, std::string peer,
                       Samples theirs, std::string target) const {
  Row row{
      tier_, std::move(what),  std::move(unit), std::move(ours), std::move(peer), std::move(theirs),
      {},    std::move(target)};
  if (peer_ == nullptr) row.why_no_peer = why_no_peer_;
  print(row);
}

Async<void> TierBench::run() {
  GB_CO_TRY(api_, co_await Api::connect(target_.url, target_.key));
  if (tier_ != "microvm") GB_CO_TRYV(co_await wait_for_pool());
  // What the first sandbox of a tier makes for all that follow.
  GB_CO_TRY(const auto first, co_await api_->create(tier_));
  GB_CO_TRYV(co_await api_->exec(first, "true"));
  GB_CO_TRYV(co_await api_->kill(first));
  if (wants("lives")) GB_CO_TRYV(co_await lives());
  if (wants("claims")) GB_CO_TRYV(co_await claims());
  if (wants("cells")) GB_CO_TRYV(co_await cells());
  if (wants("snapshots")) GB_CO_TRYV(co_await snapshots());
  if (wants("bursts")) {
    GB_CO_TRYV(co_await bursts(rounds_.bursts, rounds_.burst_size, false));
    GB_CO_TRYV(co_await bursts(rounds_.crowds, rounds_.crowd_size, true));
  }
  if (wants("inside")) GB_CO_TRYV(co_await inside());
  co_return Result<void>();
}

bool TierBench::wants(const std::string& part) const {
  const bool is_wanted = rounds_.only.empty() || rounds_.only == part;
  if (is_wanted) say(tier_ + ": " + part);
  return is_wanted;
}

Async<void> TierBench::inside() {
  // The server has closed the connection if the bursts took longer than it keeps an idle one.
  GB_CO_TRY(api_, co_await Api::connect(target_.url, target_.key));
  GB_CO_TRY(const auto id, co_await api_->create(tier_));
  if (peer_ != nullptr) GB_CO_TRYV(peer_->create(kPeerBox));
  if (peer_ != nullptr) peer_->pause(kPeerBox);
  GB_CO_TRYV(co_await execs(id));
  GB_CO_TRYV(co_await idle_execs(id));
  GB_CO_TRYV(co_await parallel_execs(id));
  GB_CO_TRYV(co_await transfers(id));
  GB_CO_TRYV(co_await previews(id));
  GB_CO_TRYV(co_await neighbours(id));
  if (peer_ != nullptr) peer_->go_on(kPeerBox);
  if (peer_ != nullptr) GB_CO_TRYV(peer_->remove(kPeerBox));
  GB_CO_TRYV(co_await api_->kill(id));
  co_return Result<void>();
}

Async<std::vector<TierBench::ApiPtr>> TierBench::connect(size_t count) {
  std::vector<ApiPtr> callers;
  for (size_t i = 0; i < count; ++i) {
    GB_CO_TRY(auto caller, co_await Api::connect(target_.url, target_.key));
    callers.push_back(std::move(caller));
  }
  co_return std::move(callers);
}

Async<void> TierBench::lives() {
  Samples create, first_exec, kill, their_create, their_first_exec, their_kill;
  for (size_t i = 0; i < rounds_.lives; ++i) {
    auto start = Clock::now();
    GB_CO_TRY(const auto id, co_await api_->create(tier_));
    create.push_back(ms_since(start));
    GB_CO_TRYV(co_await api_->exec(id, "true"));
    first_exec.push_back(ms_since(start));
    start = Clock::now();
    GB_CO_TRYV(co_await api_->kill(id));
    kill.push_back(ms_since(start));
    if (peer_ == nullptr) continue;
    const std::string peer_id = "glovebox-bench-life-" + std::to_string(100 + i);
    start = Clock::now();
    GB_CO_TRYV(peer_->create(peer_id));
    their_create.push_back(ms_since(start));
    GB_CO_TRYV(peer_->exec(peer_id, {"true"}));
    their_first_exec.push_back(ms_since(start));
    start = Clock::now();
    GB_CO_TRYV(peer_->remove(peer_id));
    their_kill.push_back(ms_since(start));
  }
  const std::string run = peer_ != nullptr ? peer_->create_name() : "";
  report("create → ready", "ms", create, run, their_create, tier_ == "gvisor" ? "≤ 1.1" : "≤ 1.5");
  report("create → first exec of `true` done", "ms", first_exec, peer_ ? run + ", exec true" : "",
         their_first_exec);
  report("kill, everything removed", "ms", kill, peer_ ? peer_->remove_name() : "", their_kill);
  co_return Result<void>();
}

Async<void> TierBench::execs(std::string id) {
  const std::string program = "./bench-noop";  // in the working directory
  if (!static_true_.empty()) GB_CO_TRYV(co_await api_->upload_program(id, program, static_true_));
  Samples ours, ours_static, theirs;
  for (size_t i = 0; i < rounds_.execs; ++i) {
    auto start = Clock::now();
    GB_CO_TRYV(co_await api_->exec(id, "true"));
    ours.push_back(ms_since(start));
    if (!static_true_.empty()) {
      start = Clock::now();
      GB_CO_TRYV(co_await api_->exec(id, program));
      ours_static.push_back(ms_since(start));
    }
    // Engines cost many times as much; a quarter of the rounds is enough to know them.
    if (peer_ == nullptr || i % 4 != 0) continue;
    peer_->go_on(kPeerBox);
    start = Clock::now();
    GB_CO_TRYV(peer_->exec(kPeerBox, {"true"}));
    theirs.push_back(ms_since(start));
    peer_->pause(kPeerBox);
  }
  report("exec `true`", "ms", ours, peer_words("exec true"), theirs, "≤ 0.25");
  if (!ours_static.empty())
    report("exec a static no-op", "ms", ours_static, peer_words("exec true"), theirs);
  co_return Result<void>();
}

Async<void> TierBench::idle_execs(std::string id) {
  Samples ours;
  for (size_t i = 0; i < rounds_.idle_execs; ++i) {
    co_await sleep_for(kIdle);
    const auto start = Clock::now();
    GB_CO_TRYV(co_await api_->exec(id, "true"));
    ours.push_back(ms_since(start));
  }
  print(Row{tier_, "exec `true` after 0.6 s without a call", "ms", ours, {}, {}, {}, {}});
  co_return Result<void>();
}

Result<double> TierBench::parallel_rate_of_theirs() const {
  std::mutex mutex;
  Result<void> result;
  const auto work = [&] {
    for (size_t i = 0; i < kTheirExecsPerCaller; ++i) {
      auto ended = peer_->exec(kPeerBox, {"true"});
      const std::lock_guard lock(mutex);
      if (!ended && result) result = std::move(ended);
    }
  };
  const auto start = Clock::now();
  std::vector<std::thread> workers;
  for (size_t i = 0; i < kCallers; ++i) workers.emplace_back(work);
  for (auto& worker : workers) worker.join();
  if (!result) return fail(std::move(result).error());
  return static_cast<double>(kCallers * kTheirExecsPerCaller) / ms_since(start) * 1000;
}

Async<void> TierBench::parallel_execs(std::string id) {
  const size_t each = std::max<size_t>(10, rounds_.execs / kCallers);
  GB_CO_TRY(const auto callers, co_await connect(kCallers));
  const auto call = [&](size_t i) -> Async<void> {
    for (size_t n = 0; n < each; ++n) GB_CO_TRYV(co_await callers[i]->exec(id, "true"));
    co_return Result<void>();
  };
  Samples ours, theirs;
  for (size_t round = 0; round < rounds_.parallel_rounds; ++round) {
    std::vector<std::function<Async<void>()>> tasks;
    for (size_t i = 0; i < kCallers; ++i) tasks.emplace_back([&call, i] { return call(i); });
    const auto start = Clock::now();
    GB_CO_TRYV(co_await all(std::move(tasks)));
    ours.push_back(static_cast<double>(kCallers * each) / ms_since(start) * 1000);
    if (peer_ == nullptr) continue;
    peer_->go_on(kPeerBox);
    GB_CO_TRY(const double rate, parallel_rate_of_theirs());
    theirs.push_back(rate);
    peer_->pause(kPeerBox);
  }
  report("exec `true` by 8 callers at once", "1/s", ours, peer_words("exec true, 8 at once"),
         theirs);
  co_return Result<void>();
}

}  // namespace glovebox::bench
