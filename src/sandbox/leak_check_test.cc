// SPDX-License-Identifier: Apache-2.0
#include "sandbox/leak_check.h"

#include <gmock/gmock.h>

namespace glovebox::sandbox {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool nobody(const std::string&) { return false; }
bool known(const std::string& id) { return id == "known"; }

TEST(LeakCheck, CountsWhatTwoLooksFindAndSaysItOnce) {
  LeakCheck check;
  const std::vector<runtime::HostObject> objects{{"known", "cgroup known"}, {"stray", "cgroup stray"}};
  EXPECT_THAT(check.look(objects, known), IsEmpty());
  EXPECT_EQ(check.leaked(), 0u);
  EXPECT_THAT(check.look(objects, known), ElementsAre("cgroup stray"));
  EXPECT_EQ(check.leaked(), 1u);
  EXPECT_THAT(check.look(objects, known), IsEmpty());
  EXPECT_EQ(check.leaked(), 1u);
}

TEST(LeakCheck, WhatComesAndGoesIsNone) {
  LeakCheck check;
  const std::vector<runtime::HostObject> probe{{"probe-1", "cgroup probe-1"}}, other{{"probe-2", "cgroup probe-2"}};
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(check.look(probe, nobody), IsEmpty());
    EXPECT_THAT(check.look(other, nobody), IsEmpty());
  }
  EXPECT_EQ(check.leaked(), 0u);
}

TEST(LeakCheck, TwoTiersThatSeeOneObjectCountItOnceAndItsRemovalIsSeen) {
  LeakCheck check;
  const std::vector<runtime::HostObject> twice{{"stray", "cgroup stray"}, {"stray", "cgroup stray"}};
  EXPECT_THAT(check.look(twice, nobody), IsEmpty());
  EXPECT_THAT(check.look(twice, nobody), ElementsAre("cgroup stray"));
  EXPECT_EQ(check.leaked(), 1u);
  EXPECT_THAT(check.look({}, nobody), IsEmpty());
  EXPECT_EQ(check.leaked(), 0u);
}

}  // namespace
}  // namespace glovebox::sandbox
