// SPDX-License-Identifier: Apache-2.0
#include "sandbox/demand.h"

#include <gtest/gtest.h>

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;

TEST(Demand, IsNothingWhenNobodyAsked) {
  EXPECT_EQ(Demand().at_once(Clock::now()), 0u);
}

TEST(Demand, CountsWhatIsWantedAtOnce) {
  Demand demand;
  const auto now = Clock::now();
  for (int i = 0; i < 12; ++i) demand.note(now + i * 50ms);
  EXPECT_EQ(demand.at_once(now + 1s), 12u);
}

TEST(Demand, CallsOneAfterTheOtherWantOne) {
  Demand demand;
  auto now = Clock::now();
  for (int i = 0; i < 20; ++i) demand.note(now += 3s);
  EXPECT_EQ(demand.at_once(now), 1u);
}

TEST(Demand, OneBurstAmongManyMomentsCountsForNothingTwoInTwentyDo) {
  Demand demand;
  auto now = Clock::now();
  const auto burst = [&] {
    now += 3s;
    for (int i = 0; i < 30; ++i) demand.note(now);
  };
  burst();
  for (int i = 0; i < 20; ++i) demand.note(now += 3s);
  EXPECT_EQ(demand.at_once(now), 1u);
  burst();
  EXPECT_EQ(demand.at_once(now), 30u);
}

TEST(Demand, ForgetsAfterTenMinutes) {
  Demand demand;
  const auto now = Clock::now();
  for (int i = 0; i < 5; ++i) demand.note(now);
  EXPECT_EQ(demand.at_once(now + 9min), 5u);
  EXPECT_EQ(demand.at_once(now + 11min), 0u);
}

}  // namespace
}  // namespace glovebox::sandbox
