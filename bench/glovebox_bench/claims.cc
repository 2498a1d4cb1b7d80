// SPDX-License-Identifier: Apache-2.0
#include "tier_bench.h"

namespace glovebox::bench {
namespace {

constexpr std::chrono::milliseconds kFillLook{20};
constexpr std::chrono::seconds kFillPatience{60};

}  // namespace

// The pool has filled up and rests, so that a claim has the machine as a cold start has.
Async<void> TierBench::wait_for_pool() {
  const auto end = after(kFillPatience);
  while (Clock::now() < end) {
    GB_CO_TRY(const bool full, co_await api_->pool_is_full(tier_));
    if (full) co_return Result<void>();
    co_await sleep_for(kFillLook);
  }
  co_return fail(Code::kTimeout, "the pool of " + tier_ + " does not fill up");
}

Async<void> TierBench::claims() {
  Samples ready, first_exec, cold, cold_exec;
  for (size_t i = 0; i < rounds_.lives; ++i) {
    for (const auto [from, made, done] : {std::tuple(Api::From::kPool, &ready, &first_exec), {Api::From::kCold, &cold, &cold_exec}}) {
      GB_CO_TRYV(co_await wait_for_pool());
      const auto start = Clock::now();
      GB_CO_TRY(const auto id, co_await api_->create(tier_, from));
      made->push_back(ms_since(start));
      GB_CO_TRYV(co_await api_->exec(id, "true"));
      done->push_back(ms_since(start));
      GB_CO_TRYV(co_await api_->kill(id));
    }
  }
  const std::string aim = tier_ == "gvisor" ? "p50 ≤ 4 ms" : "p50 ≤ 3 ms";
  const std::string exec_aim = tier_ == "gvisor" ? "p50 ≤ 12 ms" : "p50 ≤ 5 ms";
  report("claim from the pool → ready", "ms", ready, "ours, cold", cold, aim);
  report("claim from the pool → first exec of `true` done", "ms", first_exec, "ours, cold", cold_exec, exec_aim);
  co_return Result<void>();
}

Async<void> TierBench::cells() {
  constexpr const char* kTemplate = "interpreter";
  GB_CO_TRY(const bool is_kept, co_await api_->keeps_warm(tier_));
  if (!is_kept) {
    print(Row{tier_, "first cell", "ms", {}, {}, {}, "no template `interpreter`", {}});
    co_return Result<void>();
  }
  Samples whole, first, second, cold_whole, cold_first;
  for (size_t i = 0; i < rounds_.lives / 2; ++i) {
    for (const bool is_warm : {true, false}) {
      GB_CO_TRYV(co_await wait_for_pool());
      const auto start = Clock::now();
      GB_CO_TRY(const auto id, co_await api_->create(tier_, is_warm ? Api::From::kPool : Api::From::kCold, kTemplate));
      const auto made = Clock::now();
      GB_CO_TRYV(co_await api_->cell(id));
      (is_warm ? first : cold_first).push_back(ms_since(made));
      (is_warm ? whole : cold_whole).push_back(ms_since(start));
      const auto again = Clock::now();
      GB_CO_TRYV(co_await api_->cell(id));
      if (is_warm) second.push_back(ms_since(again));
      GB_CO_TRYV(co_await api_->kill(id));
    }
  }
  report("claim of a warm one → first cell `1+1` done", "ms", whole, "ours, cold", cold_whole);
  report("first cell `1+1` after the claim of a warm one", "ms", first, "ours, cold", cold_first, tier_ == "gvisor" ? "p50 ≤ 40 ms" : "p50 ≤ 20 ms");
  report("second cell `1+1`", "ms", second, {}, {});
  co_return Result<void>();
}

}  // namespace glovebox::bench
