// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <memory>

#include "base/text.h"
#include "runtime/runtime.h"
#include "runtime/testing/harness.h"
#include "sys/files.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MicrovmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = testing::why_not(Tier::kMicrovm);
    if (!problem.empty()) GTEST_SKIP() << "microvm: " << problem;
    host_ = std::make_unique<testing::Host>(Tier::kMicrovm, GLOVEBOX_REAL_AGENT);
  }
  Started start(const std::string& id) {
    const auto spec = host_->spec(id);
    auto started = host_->runtime().start(spec, host_->runtime().plan(spec), after(240s));
    EXPECT_TRUE(started) << (started ? "" : started.error().message);
    return started ? std::move(*started) : Started{};
  }
  static std::string of(const Started& box, const std::string& name) {
    return "/proc/" + box.record.fields.at("pid") + "/" + name;
  }

  std::unique_ptr<testing::Host> host_;
};

TEST_F(MicrovmTest, StartsAnswersAndLeavesNothingBehind) {
  const auto before = testing::count_objects(host_->config());
  {
    const auto box = start("box");
    ASSERT_FALSE(box.record.fields.empty());
    EXPECT_TRUE(testing::shake_hands(box.channel, 240s));
    EXPECT_TRUE(host_->runtime().destroy(box.record));
  }
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
}

TEST_F(MicrovmTest, AnotherDaemonTakesTheMachineOver) {
  auto box = start("box");
  ASSERT_TRUE(testing::shake_hands(box.channel, 240s));
  const std::string kept = testing::to_text(box.record);
  box.channel = {};
  const testing::Host again(Tier::kMicrovm, *host_);
  auto& runtime = const_cast<testing::Host&>(again).runtime();
  const Record record = testing::record_from_text(kept);
  const auto channel = runtime.adopt(record);
  ASSERT_TRUE(channel) << channel.error().message;
  EXPECT_TRUE(testing::shake_hands(*channel, 240s));
  EXPECT_TRUE(runtime.destroy(record));
}

TEST_F(MicrovmTest, TheMonitorHasNoPrivileges) {
  const auto box = start("box");
  const std::string status = sys::read_file(of(box, "status")).value_or("");
  for (const char* line :
       {"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
        "Groups:\t \n"}) {
    EXPECT_THAT(status, HasSubstr(line));
  }
  EXPECT_THAT(status, ::testing::Not(HasSubstr("Uid:\t0\t")));
  EXPECT_TRUE(host_->runtime().destroy(box.record));
}

TEST_F(MicrovmTest, TheMonitorIsInNamespacesOfItsOwn) {
  const auto box = start("box");
  for (const char* name : {"ns/mnt", "ns/pid", "ns/net", "ns/ipc", "ns/uts", "ns/cgroup"}) {
    EXPECT_NE(sys::read_link(of(box, name)), sys::read_link(std::string("/proc/self/") + name))
        << name;
  }
  for (const char* name : {"root/etc/passwd", "root/proc/self", "root/sys/kernel", "root/home",
                           "root/var/lib", "root/usr/bin/env"}) {
    EXPECT_FALSE(sys::exists(of(box, name))) << name;
  }
  EXPECT_TRUE(host_->runtime().destroy(box.record));
}

TEST_F(MicrovmTest, TheMonitorHoldsDescriptorsOfItsOwnSandboxOnly) {
  const auto other = start("other");
  const auto box = start("box");
  const std::string own = host_->config().data_dir + "/sandboxes/box/";
  for (const auto& name : sys::list_directory(of(box, "fd"))) {
    const std::string target = sys::read_link(of(box, "fd/") + name);
    if (target.empty()) continue;  // closed meanwhile
    EXPECT_THAT(target,
                AnyOf(StartsWith("pipe:"), StartsWith("socket:"), StartsWith("anon_inode:"),
                      StartsWith(own), EndsWith("/probe/rootfs.erofs"), EndsWith("/log/log"),
                      EndsWith("/memory/ram"), EndsWith("/dev/kvm"), EndsWith("/dev/null"), EndsWith("/dev/net/tun")));
    EXPECT_NE(target, "pipe:[" + other.record.fields.at("pipe_in") + "]");
    EXPECT_NE(target, "pipe:[" + other.record.fields.at("pipe_out") + "]");
  }
  EXPECT_TRUE(host_->runtime().destroy(box.record));
  EXPECT_TRUE(host_->runtime().destroy(other.record));
}

TEST_F(MicrovmTest, CopiesMapTheSnapshotsMemoryAndCannotWriteToIt) {
  auto& runtime = host_->runtime();
  const std::string image = host_->config().data_dir + "/image";
  ASSERT_TRUE(sys::make_directory(image, 0700));
  const auto box = start("box");
  ASSERT_TRUE(testing::shake_hands(box.channel, 240s));
  const auto made = runtime.snapshot(box.record, image, Runtime::Afterwards::kIsOver, after(240s));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_TRUE(runtime.check_needs(made->needs));
  for (const auto& [name, value] : made->needs) {
    auto other = made->needs;
    other[name] = "another";
    const auto checked = runtime.check_needs(other);
    ASSERT_FALSE(checked) << name;
    EXPECT_EQ(checked.error().code, Code::kSnapshotMismatch);
  }
  EXPECT_TRUE(runtime.destroy(box.record));
  for (const char* id : {"one", "two"}) {
    auto spec = host_->spec(id);
    spec.snapshot = image;
    spec.snapshot_kept = Kept::kMemoryAndFiles;
    const auto copy = runtime.start(spec, runtime.plan(spec), after(240s));
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_TRUE(testing::shake_hands(copy->channel, 240s));
    EXPECT_EQ(::open(of(*copy, "root/snapshot/memory").c_str(), O_RDWR | O_CLOEXEC), -1);
    EXPECT_EQ(errno, EROFS);
    size_t found = 0;
    for (const auto& name : sys::list_directory(of(*copy, "fd"))) {
      if (!sys::read_link(of(*copy, "fd/") + name).ends_with("/memory")) continue;
      const std::string info = sys::read_file(of(*copy, "fdinfo/") + name).value_or("");
      EXPECT_THAT(info, ::testing::ContainsRegex("flags:\t0[0-7]*0\n")) << "for reading";
      ++found;
    }
    EXPECT_EQ(found, 1u);
    EXPECT_TRUE(runtime.destroy(copy->record));
  }
}

TEST_F(MicrovmTest, AnImageThatIsNoneStartsNothingAndLeavesNothing) {
  const std::string image = host_->config().data_dir + "/image";
  ASSERT_TRUE(sys::make_directory(image, 0700));
  ASSERT_TRUE(sys::put_file(image + "/machine.json", "{\"vcpus\":1,\"memory_bytes\":134217728}", 0600));
  for (const char* part : {"memory", "devices", "disk.img"}) ASSERT_TRUE(sys::put_file(image + "/" + part, std::string(1 << 20, 'x'), 0600));
  const auto before = testing::count_objects(host_->config());
  auto spec = host_->spec("copy");
  spec.snapshot = image;
  spec.snapshot_kept = Kept::kMemoryAndFiles;
  for (const uint64_t bytes : {1ull << 20, 128ull << 20}) {
    ASSERT_EQ(::truncate((image + "/memory").c_str(), static_cast<off_t>(bytes)), 0);
    ASSERT_EQ(::truncate((image + "/disk.img").c_str(), static_cast<off_t>(spec.limits.disk_bytes)), 0);
    const auto started = host_->runtime().start(spec, host_->runtime().plan(spec), after(240s));
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code, Code::kStartFailed) << started.error().message;
    EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
  }
}

}  // namespace
}  // namespace glovebox::runtime
