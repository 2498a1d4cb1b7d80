// SPDX-License-Identifier: Apache-2.0
#include "http/framing.h"

#include <gtest/gtest.h>

namespace glovebox::http::internal {
namespace {

const std::string kHead = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

// Decodes `bytes` as they would come in pieces that end at each of `ends`; what was not consumed comes again with the next.
std::string decode_in_pieces(const std::string& bytes, const std::vector<size_t>& ends) {
  Request request;
  auto body = parse_request_head(kHead, request);
  if (!body) return "refused";
  std::string out;
  size_t used = 0;
  for (const size_t end : ends) {
    while (!(*body)->is_done()) {
      const auto n = (*body)->decode(std::string_view(bytes).substr(used, end - used), out, 1 << 20);
      if (!n) return "broken";
      used += *n;
      if (*n == 0) break;
    }
  }
  return (*body)->is_done() && used == bytes.size() ? out : "incomplete";
}

TEST(BodyDecoder, TakesChunksCutAnywhere) {
  const std::pair<std::string, std::string> bodies[] = {
      {"0\r\n\r\n", ""}, {"000\r\nA: b\r\n\r\n", ""}, {"0;last\r\n\r\n", ""}, {"1\r\na\r\n0\r\n\r\n", "a"},
      {"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n", "abcde"}};
  for (const auto& [bytes, content] : bodies) {
    std::vector<size_t> single;
    for (size_t first = 1; first <= bytes.size(); ++first) {
      single.push_back(first);
      for (size_t second = first; second <= bytes.size(); ++second) {
        EXPECT_EQ(decode_in_pieces(bytes, {first, second, bytes.size()}), content) << bytes << first << "," << second;
      }
    }
    EXPECT_EQ(decode_in_pieces(bytes, single), content) << bytes;
  }
}

}  // namespace
}  // namespace glovebox::http::internal
