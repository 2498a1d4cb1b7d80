// SPDX-License-Identifier: Apache-2.0
#include "sandbox/demand.h"

#include <algorithm>
#include <vector>

namespace glovebox::sandbox {
namespace {

constexpr std::chrono::seconds kMoment{2};  // a pool does not fill up again in less
constexpr std::chrono::minutes kMemory{10};

}  // namespace

void Demand::note(Clock::time_point now) {
  if (moments_.empty() || now - moments_.back().begin >= kMoment) moments_.push_back({now, 0});
  ++moments_.back().wanted;
  forget(now);
}

void Demand::forget(Clock::time_point now) {
  while (!moments_.empty() && now - moments_.front().begin > kMemory) moments_.pop_front();
}

size_t Demand::at_once(Clock::time_point now) {
  forget(now);
  if (moments_.empty()) return 0;
  std::vector<size_t> sizes;
  for (const Moment& moment : moments_) sizes.push_back(moment.wanted);
  const size_t rank = (sizes.size() * 95 + 99) / 100 - 1;
  std::ranges::nth_element(sizes, sizes.begin() + static_cast<std::ptrdiff_t>(rank));
  return sizes[rank];
}

}  // namespace glovebox::sandbox
