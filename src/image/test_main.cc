// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "image/templates.h"

// The tests start this program again as the image helper, like the daemon does.
int main(int argc, char** argv) {
  if (const auto status = glovebox::image::run_helper(argc, argv)) return *status;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
