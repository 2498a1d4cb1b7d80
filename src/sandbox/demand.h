// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>

#include "base/async.h"

namespace glovebox::sandbox {

// How many sandboxes were wanted at about the same time, lately.
class Demand {
 public:
  // A call wants one now. Times never go back.
  void note(Clock::time_point now);
  // What 95 of 100 moments of the last ten minutes in which any was wanted did not go beyond.
  size_t at_once(Clock::time_point now);

 private:
  struct Moment {
    Clock::time_point begin;
    size_t wanted = 0;
  };
  void forget(Clock::time_point now);

  std::deque<Moment> moments_;  // oldest first
};

}  // namespace glovebox::sandbox
