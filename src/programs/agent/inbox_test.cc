// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/inbox.h"

#include <gtest/gtest.h>

namespace glovebox::agent {
namespace {

using channel::Type;

TEST(Inbox, JoinsPartsAndKeepsChannelsApart) {
  std::string bytes;
  channel::append_frame(bytes, 1, Type::kExec, "a", channel::kFlagMore);
  channel::append_frame(bytes, 2, Type::kStdin, "other");
  channel::append_frame(bytes, 1, Type::kExec, "b");
  Inbox inbox;
  std::vector<Inbox::Message> got;
  for (const char c : bytes) {
    inbox.feed(std::string_view(&c, 1));
    Inbox::Message message;
    while (inbox.next(&message)) got.push_back(message);
  }
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].payload, "other");
  EXPECT_EQ(got[1].payload, "ab");
}

TEST(Inbox, AMessageAboveTheLimitIsReportedNotKept) {
  Inbox inbox;
  std::string bytes;
  for (int i = 0; i < 300; ++i)
    channel::append_frame(bytes, 1, Type::kExec, std::string(4000, 'x'), channel::kFlagMore);
  channel::append_frame(bytes, 1, Type::kExec, "end");
  inbox.feed(bytes);
  Inbox::Message message;
  ASSERT_TRUE(inbox.next(&message));
  EXPECT_TRUE(message.too_long);
  EXPECT_TRUE(message.payload.empty());
}

TEST(Inbox, ANewTypeBeginsANewMessage) {
  Inbox inbox;
  std::string bytes;
  channel::append_frame(bytes, 1, Type::kExec, "old", channel::kFlagMore);
  channel::append_frame(bytes, 1, Type::kRequest, "new");
  inbox.feed(bytes);
  Inbox::Message message;
  ASSERT_TRUE(inbox.next(&message));
  EXPECT_EQ(message.payload, "new");
}

}  // namespace
}  // namespace glovebox::agent
