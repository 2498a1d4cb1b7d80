// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/sse_reader.h"

#include <gtest/gtest.h>

#include <vector>

namespace glovebox::cli {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Every event, whatever pieces the bytes come in.
Pairs events_of(std::string_view bytes, size_t piece) {
  SseReader reader(1000);
  Pairs out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.feed(bytes.substr(at, piece));
    while (true) {
      const auto event = reader.next();
      if (!event || !*event) break;
      out.emplace_back((*event)->id, (*event)->data);
    }
  }
  return out;
}

TEST(SseReader, CutsEventsWhateverPiecesTheyComeIn) {
  constexpr std::string_view kBytes =
      ": keepalive\n\nid: s.0\ndata: \n\nid: s.1\nevent: message\ndata: {\"a\":1}\r\n\r\n"
      "data:x\ndata: y\n\n\ndata: unfinished";
  const Pairs wanted = {{"s.0", ""}, {"s.1", "{\"a\":1}"}, {"", "x\ny"}};
  for (const size_t piece : {1ul, 2ul, 7ul, 1000ul})
    EXPECT_EQ(events_of(kBytes, piece), wanted) << piece;
}

TEST(SseReader, BoundsAnEvent) {
  SseReader reader(10);
  reader.feed("data: 01234567890\n");
  EXPECT_EQ(reader.next().error().code, Code::kPayloadTooLarge);
}

}  // namespace
}  // namespace glovebox::cli
