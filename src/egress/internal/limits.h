// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/async.h"

namespace glovebox::egress {

// So many units a second, and a burst of them after a pause.
class TokenBucket {
 public:
  TokenBucket() = default;  // no limit
  TokenBucket(uint64_t per_second, uint64_t burst);
  // What may be used now, at most `wanted`; it counts as used.
  uint64_t take(uint64_t wanted, Clock::time_point now = Clock::now());
  void give_back(uint64_t unused);
  // When the next fiftieth of a second's worth will be there.
  Clock::time_point next_at() const;
  bool is_limited() const { return per_second_ != 0; }

 private:
  void refill(Clock::time_point now);

  uint64_t per_second_ = 0, burst_ = 0;
  double tokens_ = 0;
  Clock::time_point filled_at_{};
};

// How many different names may be looked up below one wildcard: names carry data to whoever serves
// the domain.
class NameBudget {
 public:
  static constexpr size_t kNamesPerMinute = 60;
  static constexpr size_t kMaxNameBytes = 128, kMaxLabelBytes = 48, kMaxLabelsBelow = 4;
  // Empty when `host`, which matched `wildcard` ("*.example.com"), may be looked up; else why not.
  std::string check(const std::string& wildcard, const std::string& host,
                    Clock::time_point now = Clock::now());

 private:
  struct Window {
    Clock::time_point begin{};
    std::set<std::string> names;
    std::set<std::string> earlier;  // of the window before: free
  };
  std::map<std::string, Window> windows_;
};

}  // namespace glovebox::egress
