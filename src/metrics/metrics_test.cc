// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics.h"

#include <gtest/gtest.h>

namespace glovebox::metrics {
namespace {

TEST(Metrics, TextFormatHasHelpTypeLabelsAndCumulativeBuckets) {
  Registry r;
  r.counter("glovebox_x_total", "Things.", {{"why", "a\"b\\c\nd"}}).add(3);
  r.counter("glovebox_x_total", "Things.", {{"why", "a\"b\\c\nd"}}).add();
  auto& h = r.histogram("glovebox_y_seconds", "Time.");
  h.observe(0.0004);
  h.observe(0.0005);
  h.observe(100);
  r.gauge("glovebox_z", "Now.", [] { return Registry::Samples{{{}, 1.5}}; });
  const std::string text = r.text();
  EXPECT_NE(text.find("# TYPE glovebox_x_total counter\nglovebox_x_total{why=\"a\\\"b\\\\c\\nd\"} 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("glovebox_y_seconds_bucket{le=\"0.0005\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("glovebox_y_seconds_bucket{le=\"60\"} 2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("glovebox_y_seconds_bucket{le=\"+Inf\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("glovebox_y_seconds_count 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("glovebox_z 1.5\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace glovebox::metrics
