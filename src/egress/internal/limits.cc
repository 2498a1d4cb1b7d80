// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/limits.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::egress {

TokenBucket::TokenBucket(uint64_t per_second, uint64_t burst)
    : per_second_(per_second),
      burst_(burst),
      tokens_(static_cast<double>(burst)),
      filled_at_(Clock::now()) {}

void TokenBucket::refill(Clock::time_point now) {
  if (now <= filled_at_) return;
  const std::chrono::duration<double> passed = now - filled_at_;
  filled_at_ = now;
  tokens_ = std::min(static_cast<double>(burst_),
                     tokens_ + passed.count() * static_cast<double>(per_second_));
}

uint64_t TokenBucket::take(uint64_t wanted, Clock::time_point now) {
  if (!is_limited()) return wanted;
  refill(now);
  const uint64_t taken = std::min(wanted, static_cast<uint64_t>(std::max(0.0, tokens_)));
  tokens_ -= static_cast<double>(taken);
  return taken;
}

void TokenBucket::give_back(uint64_t unused) {
  if (is_limited())
    tokens_ = std::min(static_cast<double>(burst_), tokens_ + static_cast<double>(unused));
}

Clock::time_point TokenBucket::next_at() const {
  if (!is_limited()) return filled_at_;
  const double missing = std::max(1.0, static_cast<double>(per_second_) / 50) - tokens_;
  const std::chrono::duration<double> wait(std::max(0.0, missing) /
                                           static_cast<double>(per_second_));
  return filled_at_ + std::chrono::duration_cast<Clock::duration>(wait) +
         std::chrono::milliseconds(1);
}

std::string NameBudget::check(const std::string& wildcard, const std::string& host,
                              Clock::time_point now) {
  if (host.size() > kMaxNameBytes)
    return "the name is longer than " + std::to_string(kMaxNameBytes) + " bytes";
  const size_t suffix = wildcard.size() > 1 ? wildcard.size() - 1 : 0;  // ".example.com"
  const auto below = host.substr(0, host.size() - std::min(host.size(), suffix));
  if (static_cast<size_t>(std::count(below.begin(), below.end(), '.')) >= kMaxLabelsBelow) {
    return "the name has more than " + std::to_string(kMaxLabelsBelow) +
           " labels below the wildcard";
  }
  for (const auto& label : split(below, '.')) {
    if (label.size() > kMaxLabelBytes)
      return "a label below the wildcard is longer than " + std::to_string(kMaxLabelBytes) +
             " bytes";
  }
  Window& window = windows_[wildcard];
  if (now - window.begin >= std::chrono::minutes(1)) {
    window.earlier = std::move(window.names);
    window.names.clear();
    window.begin = now;
  }
  if (window.names.contains(host)) return {};
  const bool is_known = window.earlier.contains(host) && window.names.size() < 4 * kNamesPerMinute;
  if (!is_known && window.names.size() >= kNamesPerMinute) {
    return "more than " + std::to_string(kNamesPerMinute) + " names below " + wildcard +
           " in a minute";
  }
  window.names.insert(host);
  return {};
}

}  // namespace glovebox::egress
