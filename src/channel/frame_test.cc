// SPDX-License-Identifier: Apache-2.0
#include "channel/frame.h"

#include <gtest/gtest.h>

namespace glovebox::channel {
namespace {

TEST(Frame, GoldenBytes) {
  std::string out;
  append_frame(out, 0x01020304, Type::kStdin, "hi");
  EXPECT_EQ(out, std::string("\x02\0\0\0\x04\x03\x02\x01\x11\0\0\0hi", 14));
  EXPECT_EQ(sync_mark(std::string(16, 'n')), "\xF0glovebox-sync\r\n" + std::string(16, 'n'));
  EXPECT_EQ(sync_mark(std::string(16, 'n')).size(), kSyncBytes);
  EXPECT_EQ(stream_header(2, 258), std::string("\x02\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0", 16));
}

TEST(Decoder, JoinsPartsOfSeveralChannelsFedByteByByte) {
  std::string bytes, a(10000, 'a'), b(5000, 'b');
  append_frame(bytes, 2, Type::kRequest, b.substr(0, 2500), kFlagMore);
  append_message(bytes, 1, Type::kExec, a, kMaxPayloadToAgent);
  append_frame(bytes, 2, Type::kRequest, b.substr(2500));
  Decoder decoder(kMaxPayloadToAgent, kMaxMessageToAgent);
  std::vector<Frame> got;
  for (const char c : bytes) {
    decoder.feed(std::string_view(&c, 1));
    Frame frame;
    if (decoder.next(&frame).value()) got.push_back(frame);
  }
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].payload, a);
  EXPECT_EQ(got[1].payload, b);
  EXPECT_EQ(decoder.buffered(), 0u);
}

TEST(Decoder, RefusesWhatWouldCostMemory) {
  Frame frame;
  Decoder giant(64, 1000);
  std::string bytes;
  append_frame(bytes, 1, Type::kData, std::string(65, 'x'));
  giant.feed(bytes);
  EXPECT_EQ(giant.next(&frame).error().code, Code::kAgentProtocol);

  Decoder endless(64, 1000);
  for (int i = 0; i < 20; ++i) {
    bytes.clear();
    append_frame(bytes, 1, Type::kData, std::string(60, 'x'), kFlagMore);
    endless.feed(bytes);
    auto result = endless.next(&frame);
    if (!result) {
      EXPECT_LE(i, 17);
      return;
    }
  }
  FAIL() << "1200 joined bytes were accepted";
}

TEST(Decoder, RefusesManyEmptyUnfinishedMessages) {
  Frame frame;
  Decoder decoder(64, 1000);
  std::string bytes;
  for (uint32_t channel = 1; channel <= 200; ++channel) append_frame(bytes, channel, Type::kData, "", kFlagMore);
  decoder.feed(bytes);
  EXPECT_EQ(decoder.next(&frame).error().code, Code::kAgentProtocol);
}

TEST(Decoder, RefusesATypeChangeInsideAMessage) {
  Frame frame;
  Decoder decoder(64, 1000);
  std::string bytes;
  append_frame(bytes, 1, Type::kData, "a", kFlagMore);
  append_frame(bytes, 1, Type::kEnd, "b");
  decoder.feed(bytes);
  EXPECT_FALSE(decoder.next(&frame).has_value());
}

}  // namespace
}  // namespace glovebox::channel
