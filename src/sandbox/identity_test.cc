// SPDX-License-Identifier: Apache-2.0
#include "sandbox/identity.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "sandbox/snapshot_codec.h"

namespace glovebox::sandbox {
namespace {

const WallTime kNow = from_unix_millis(1'800'000'000'000);

struct Said {
  std::string hostname = "sb-1", machine_id = std::string(32, 'a'), boot_id = "b", entropy = "mixed", sample = hex(random_bytes(16)), error;
  int64_t ms = unix_millis(kNow);
  std::string text() const {
    return R"({"version":1,"executions":[],"resumed":{"hostname":")" + hostname + R"(","machine_id":")" + machine_id + R"(","boot_id":")" + boot_id +
           R"(","entropy":")" + entropy + R"(","sample":")" + sample + R"(","hooks":0,"unix_time_ns":)" + std::to_string(ms * 1'000'000) +
           (error.empty() ? "" : R"(,"error":")" + error + "\"") + "}}";
  }
};

std::string verdict(const Said& said, const Identity& wanted = {std::string(32, 'a'), "b"}) {
  const auto checked = check_confirmation(said.text(), wanted, "sb-1", kNow, kNow + Millis(50));
  if (checked) return "fine";
  return checked.error().code == Code::kStartFailed ? checked.error().details.at("cause") : "protocol";
}

TEST(Identity, IsConfirmedAsAWholeOrNotAtAll) {
  EXPECT_EQ(verdict({}), "fine");
  Said said;
  EXPECT_EQ((said = {}, said.hostname = "sb-2", verdict(said)), "hostname");
  EXPECT_EQ((said = {}, said.machine_id = std::string(32, 'c'), verdict(said)), "machine_id");
  EXPECT_EQ((said = {}, said.boot_id = "c", verdict(said)), "boot_id");
  EXPECT_EQ((said = {}, said.entropy = "", verdict(said)), "entropy");
  EXPECT_EQ((said = {}, said.sample = "00", verdict(said)), "entropy");
  EXPECT_EQ((said = {}, said.error = "a hook", verdict(said)), "hook");
  EXPECT_EQ((said = {}, said.ms += 151, verdict(said)), "clock");
  EXPECT_EQ((said = {}, said.ms -= 101, verdict(said)), "clock");
  EXPECT_EQ((said = {}, said.ms += 149, verdict(said)), "fine");
  EXPECT_EQ((said = {}, said.machine_id = "kept", verdict(said, {})), "fine") << "what is not asked for is kept";
}

TEST(Identity, TwoCopiesWithTheSameRandomNumbersAreNotSafe) {
  const Said said;
  EXPECT_EQ(verdict(said), "fine");
  EXPECT_EQ(verdict(said), "entropy");
}

TEST(Identity, AnAgentThatSaysNothingConfirmsNothing) {
  for (const char* text : {R"({"version":1})", R"({"resumed":{}})", R"({"resumed":[]})", "", "[]"}) {
    EXPECT_FALSE(check_confirmation(text, {}, "sb-1", kNow, kNow).has_value()) << text;
  }
}

TEST(SnapshotCodec, WhatIsWrittenIsRead) {
  codec::SnapshotDocument d;
  d.info.id = "snap-1";
  d.info.tenant = "t";
  d.info.labels = {{"a", "b"}};
  d.info.tier = runtime::Tier::kGvisor;
  d.info.kept = runtime::Kept::kMemoryAndFiles;
  d.info.parts = {{"pages.img", 7, "00"}};
  d.info.needs = {{"engine", "x"}};
  d.info.stall = std::chrono::microseconds(5);
  d.info.created_at = kNow;
  d.rootfs = {"digest", "/path"};
  d.executions.emplace_back().id = "ex-1";
  const auto read = codec::decode_snapshot(codec::encode(d));
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(codec::encode(*read), codec::encode(d));
  EXPECT_EQ(read->executions.at(0).id, "ex-1");
  for (const char* wrong : {"{}", R"({"id":"x","tier":"gvisor","kept":"all"})", R"({"id":"x","tier":"gvisor","kept":"files","parts":[{"name":"../x"}]})"}) {
    EXPECT_EQ(codec::decode_snapshot(wrong).error().code, Code::kCorrupt) << wrong;
  }
}

}  // namespace
}  // namespace glovebox::sandbox
