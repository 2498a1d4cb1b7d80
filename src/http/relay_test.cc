// SPDX-License-Identifier: Apache-2.0
#include "http/relay.h"

#include <gtest/gtest.h>

// That it relays is shown by tests/integration/test_previews.py, between real clients and real servers.
namespace glovebox::http {
namespace {

TEST(Relay, WhatSpeaksOfOneConnectionIsLeftOut) {
  const Headers in{{"Host", "h"}, {"connection", "close, X-Mine"}, {"x-mine", "1"}, {"Keep-Alive", "5"}, {"TE", "trailers"}, {"Trailer", "X"},
                   {"Transfer-Encoding", "chunked"}, {"Upgrade", "h2c"}, {"Content-Length", "5"}, {"Expect", "100-continue"},
                   {"Proxy-Authorization", "x"}, {"X-Kept", "2"}, {"X-Kept", "3"}};
  EXPECT_EQ(end_to_end(in), (Headers{{"Host", "h"}, {"X-Kept", "2"}, {"X-Kept", "3"}}));
}

}  // namespace
}  // namespace glovebox::http
