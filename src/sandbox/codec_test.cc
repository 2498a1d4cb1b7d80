// SPDX-License-Identifier: Apache-2.0
#include "sandbox/codec.h"

#include <gtest/gtest.h>

namespace glovebox::sandbox::codec {
namespace {

std::string entry(const std::string& fields) {
  return R"({"ok":true,"entry":{"name":"n","path":"/n","type":"file",)" + fields + R"("uid":0,"gid":0,"user":"root","group":"root"}})";
}

TEST(Codec, EntriesOfAnHonestAgent) {
  const auto e = decode_entry(entry(R"("size":9007199254740993,"mode":420,"mtime_ms":-5,"target":{"b64":"/w=="},)"));
  ASSERT_TRUE(e.has_value());
  EXPECT_EQ(e->size, 9007199254740993u);
  EXPECT_EQ(e->mtime_ms, -5);
  EXPECT_EQ(e->target, "\xFF");
}

TEST(Codec, ImpossibleEntriesAreAgentProtocol) {
  for (const std::string& fields :
       {std::string(R"("size":-1,)"), std::string(R"("size":18446744073709551615,)"), std::string(R"("size":1e300,)"),
        std::string(R"("size":1.5,)"), std::string(R"("size":"9",)"), std::string(R"("mode":4096,)"), std::string(R"("mode":-1,)"),
        std::string(R"("uid":4294967296,)"), std::string(R"("type":"door",)"), std::string(R"("name":{"b64":"AA=="},)"),
        std::string(R"("name":{"b64":7},)"), std::string(R"("name":[[]],)"), "\"name\":\"" + std::string(1 << 20, 'x') + "\",",
        std::string("\"name\":\"\xFF\xFE\",")}) {
    // The last of two equal names counts, so these stand behind the good ones.
    const std::string text = R"({"ok":true,"entry":{"name":"n","path":"/n","type":"file","uid":0,"gid":0,)" + fields + R"("user":"root"}})";
    const auto e = decode_entry(text);
    EXPECT_EQ(e ? Code::kInternal : e.error().code, Code::kAgentProtocol) << fields.substr(0, 60);
  }
  for (const char* text : {"", "{", "[]", "{}", R"({"entry":7})", R"({"entry":null})"}) EXPECT_FALSE(decode_entry(text).has_value()) << text;
}

TEST(Codec, WhatIsCheapToSendAndDearToParseIsRefused) {
  std::string zeros = R"({"entries":[0)";
  for (int i = 0; i < 1'500'000; ++i) zeros += ",0";
  zeros += "]}";
  ASSERT_LT(zeros.size(), 4u << 20);
  EXPECT_EQ(decode_entries(zeros).error().code, Code::kAgentProtocol);
  EXPECT_EQ(decode_processes(std::string(4 << 20, '[')).error().code, Code::kAgentProtocol);
}

TEST(Codec, LengthsThatNoFileHasAreRefused) {
  EXPECT_TRUE(decode_read(R"({"length":0})").has_value());
  EXPECT_FALSE(decode_read(R"({"length":-1})").has_value());
  EXPECT_FALSE(decode_read(R"({"length":18446744073709551615})").has_value());
}

TEST(Codec, HelloTakesOurIdsOnceEach) {
  const auto decoded = decode_hello(R"({"version":1,"executions":[{"id":"ex-abc2","state":"exited","pid":0},{"id":"ex-b"}]})");
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->size(), 2u);
  EXPECT_TRUE(decoded->at(0).exited);
  std::string many = R"({"version":1,"executions":[)";
  for (int i = 0; i < 5000; ++i) many += (i > 0 ? R"(,{"id":"ex-)" : R"({"id":"ex-)") + std::to_string(i) + "\"}";
  EXPECT_EQ(decode_hello(many + "]}").error().code, Code::kAgentProtocol);
  EXPECT_FALSE(decode_hello(R"({"version":1,"executions":[{"id":"ex-)" + std::string(62, 'a') + "\"}]}").has_value());
}

TEST(Codec, SandboxDocumentsSurviveAndBrokenOnesAreCorrupt) {
  SandboxDocument d;
  d.info.id = "sb-a";
  d.info.state = State::kEnded;
  d.info.ended = Ended{from_unix_millis(5), "killed", "m"};
  d.record.fields["slot"] = "3";
  const auto copy = decode_sandbox(encode(d));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->record.fields.at("slot"), "3");
  EXPECT_EQ(copy->info.ended->reason, "killed");
  d.info.ended.reset();
  EXPECT_EQ(decode_sandbox(encode(d)).error().code, Code::kCorrupt) << "ended, and does not say how";
}

}  // namespace
}  // namespace glovebox::sandbox::codec
