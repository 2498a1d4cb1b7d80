// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "tier_bench.h"

// What one sandbox notices of another one that takes all it can get.
namespace glovebox::bench {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrowth = 1s;  // until the neighbour is at its worst

struct Nuisance {
  std::string name;
  Words argv;
};

// Every process forks for ever. A shell that may not fork ends, and another takes its place: it is
// `:(){ :|:& };:`, which ends by itself once most of it has failed, kept alive. The first process
// stays, and with it the execution.
Nuisance fork_bomb() {
  return {"a fork bomb",
          {"sh", "-c", "bomb() { while :; do bomb | bomb & done; }; bomb & exec sleep 1000"}};
}

Nuisance unread_output() {
  return {"`yes` that nobody reads", {"yes"}};
}

}  // namespace

Async<void> TierBench::some_execs(std::string id, Samples* samples) {
  GB_CO_TRYV(co_await api_->exec(id, "true"));  // the one that thaws it
  for (size_t i = 0; i < rounds_.neighbour_execs; ++i) {
    const auto start = Clock::now();
    GB_CO_TRYV(co_await api_->exec(id, "true"));
    samples->push_back(ms_since(start));
  }
  co_return Result<void>();
}

// Returns how many cores the neighbour used meanwhile.
Async<double> TierBench::execs_beside(std::string id, std::string other, Samples* samples) {
  GB_CO_TRY(const double before, co_await api_->cpu_ms(other));
  const auto start = Clock::now();
  GB_CO_TRYV(co_await some_execs(id, samples));
  GB_CO_TRY(const double after, co_await api_->cpu_ms(other));
  co_return (after - before) / ms_since(start);
}

Async<void> TierBench::beside(std::string id, std::string name, Words argv) {
  Samples quiet, noisy, cores;
  for (size_t i = 0; i < rounds_.neighbour_rounds; ++i) {
    GB_CO_TRYV(co_await some_execs(id, &quiet));
    GB_CO_TRY(const auto other, co_await api_->create(tier_));
    GB_CO_TRYV(co_await api_->start(other, argv));
    co_await sleep_for(kGrowth);
    GB_CO_TRY(const double used, co_await execs_beside(id, other, &noisy));
    cores.push_back(used);
    GB_CO_TRYV(co_await api_->kill(other));
  }
  // A neighbour that does nothing would make us look good, so it shows.
  char text[40];
  std::snprintf(text, sizeof text, " (it uses %.1f cores)", percentile(cores, 0.5));
  print(Row{tier_,
            "exec `true` beside " + name + text,
            "ms",
            noisy,
            "ours, quiet",
            quiet,
            {},
            "p99 ≤ 3"});
  co_return Result<void>();
}

Async<void> TierBench::neighbours(std::string id) {
  for (const auto& nuisance : {fork_bomb(), unread_output()})
    GB_CO_TRYV(co_await beside(id, nuisance.name, nuisance.argv));
  co_return Result<void>();
}

}  // namespace glovebox::bench
