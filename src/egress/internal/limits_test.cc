// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/limits.h"

#include <gtest/gtest.h>

namespace glovebox::egress {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

TEST(TokenBucket, GivesTheRateAndTheBurst) {
  TokenBucket bucket(1000, 200);
  const auto now = Clock::now() + milliseconds(1);
  EXPECT_EQ(bucket.take(1000, now), 200U);
  EXPECT_EQ(bucket.take(1, now), 0U);
  EXPECT_EQ(bucket.take(1000, now + milliseconds(100)), 100U);
  EXPECT_EQ(bucket.take(1000, now + minutes(1)), 200U);
  bucket.give_back(50);
  EXPECT_EQ(bucket.take(1000, now + minutes(1)), 50U);
  EXPECT_GT(bucket.next_at(), now + minutes(1));
}

TEST(TokenBucket, WithoutARateThereIsNoLimit) {
  TokenBucket bucket;
  EXPECT_EQ(bucket.take(1ULL << 40), 1ULL << 40);
}

TEST(NameBudget, CountsDifferentNamesInAMinute) {
  NameBudget budget;
  const auto now = Clock::now();
  const auto ask = [&](int i, Clock::time_point when) {
    return budget.check("*.a.test", "n" + std::to_string(i) + ".a.test", when).empty();
  };
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(ask(i, now)) << i;
  EXPECT_FALSE(ask(60, now));
  EXPECT_TRUE(ask(0, now)) << "a name that was asked for before";
  EXPECT_TRUE(budget.check("*.b.test", "x.b.test", now).empty()) << "another rule";
  EXPECT_TRUE(ask(60, now + minutes(1)));
}

TEST(NameBudget, KnownNamesCannotGrowWithoutEnd) {
  NameBudget budget;
  auto now = Clock::now();
  size_t most = 0;
  for (int window = 0; window < 20; ++window, now += minutes(1)) {
    size_t passed = 0;
    for (int i = window * 60 + 59; i >= 0; --i)
      passed += budget.check("*.a.test", "n" + std::to_string(i) + ".a.test", now).empty();
    most = std::max(most, passed);
  }
  EXPECT_LE(most, 4 * NameBudget::kNamesPerMinute);
}

TEST(NameBudget, RefusesLongAndDeepNames) {
  NameBudget budget;
  EXPECT_FALSE(
      budget.check("*.a.test", std::string(63, 'x') + "." + std::string(63, 'y') + ".a.test")
          .empty());
  EXPECT_FALSE(budget.check("*.a.test", std::string(49, 'x') + ".a.test").empty());
  EXPECT_TRUE(budget.check("*.a.test", std::string(48, 'x') + ".a.test").empty());
  EXPECT_FALSE(budget.check("*.a.test", "1.2.3.4.5.a.test").empty());
  EXPECT_TRUE(budget.check("*.a.test", "1.2.3.4.a.test").empty());
}

}  // namespace
}  // namespace glovebox::egress
