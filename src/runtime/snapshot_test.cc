// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "runtime/testing/harness.h"
#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;
using testing::ask;
using testing::count_objects;
using ::testing::HasSubstr;
using testing::Host;
using testing::shake_hands;
using Afterwards = Runtime::Afterwards;

class SnapshotTest : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    std::string problem = testing::why_not(GetParam());
    if (!problem.empty()) GTEST_SKIP() << tier_name(GetParam()) << ": " << problem;
    host_ = std::make_unique<Host>(GetParam());
    image_ = host_->config().data_dir + "/image";
    ASSERT_TRUE(sys::make_directory(image_, 0700));
  }

  Runtime& runtime() { return host_->runtime(); }
  bool keeps_memory() { return runtime().keeps() == Kept::kMemoryAndFiles; }

  Started start(StartSpec spec) {
    auto started = runtime().start(spec, runtime().plan(spec), after(120s));
    EXPECT_TRUE(started.has_value()) << started.error().message;
    if (!started) std::abort();
    return std::move(*started);
  }
  StartSpec copy_spec(const std::string& id) {
    auto spec = host_->spec(id);
    spec.snapshot = image_;
    spec.snapshot_kept = runtime().keeps();
    return spec;
  }
  std::string answer(const Started& box, const std::string& command) {
    auto text = ask(box.channel, command);
    return text ? *text : "no answer";
  }
  SnapshotImage snapshot(const Started& box, Afterwards afterwards = Afterwards::kGoesOn) {
    auto image = runtime().snapshot(box.record, image_, afterwards, after(120s));
    EXPECT_TRUE(image.has_value()) << image.error().message;
    if (!image) std::abort();
    return *image;
  }
  void end(const Started& box) {
    EXPECT_TRUE(runtime().destroy(box.record));
    ::rmdir(box.record.directory.c_str());
  }

  std::unique_ptr<Host> host_;
  std::string image_;
};

INSTANTIATE_TEST_SUITE_P(Tiers, SnapshotTest, ::testing::Values(Tier::kContainer, Tier::kGvisor),
                         [](const auto& tier) { return std::string(tier_name(tier.param)); });

TEST_P(SnapshotTest, TheSourceGoesOnAndCopiesHaveItsFiles) {
  auto source = start(host_->spec("source"));
  ASSERT_TRUE(shake_hands(source.channel));
  ASSERT_EQ(answer(source, "mkdir /before"), "ok");
  const auto image = snapshot(source);
  EXPECT_EQ(image.kept, runtime().keeps());
  EXPECT_FALSE(image.parts.empty());
  EXPECT_TRUE(runtime().check_needs(image.needs));
  EXPECT_EQ(answer(source, "mkdir /after"), "ok");
  auto one = start(copy_spec("one")), two = start(copy_spec("two"));
  for (const auto* copy : {&one, &two}) {
    ASSERT_TRUE(shake_hands(copy->channel));
    EXPECT_THAT(answer(*copy, "list /"), HasSubstr("before"));
    EXPECT_THAT(answer(*copy, "list /"), ::testing::Not(HasSubstr("after")));
  }
  EXPECT_EQ(answer(one, "mkdir /one"), "ok");
  EXPECT_THAT(answer(two, "list /"), ::testing::Not(HasSubstr("one")));
  for (const auto* box : {&source, &one, &two}) end(*box);
}

TEST_P(SnapshotTest, AFrozenSandboxStaysFrozen) {
  if (keeps_memory()) GTEST_SKIP() << "its memory is written by an engine that runs";
  auto source = start(host_->spec("source"));
  ASSERT_TRUE(shake_hands(source.channel));
  ASSERT_TRUE(runtime().freeze(source.record));
  snapshot(source);
  EXPECT_FALSE(ask(source.channel, "cpus", 200ms).has_value());
  end(source);
}

TEST_P(SnapshotTest, TheEndIsTheMomentThatIsKept) {
  auto source = start(host_->spec("source"));
  ASSERT_TRUE(shake_hands(source.channel));
  ASSERT_EQ(answer(source, "mkdir /before"), "ok");
  snapshot(source, Afterwards::kIsOver);
  EXPECT_FALSE(ask(source.channel, "cpus", 200ms).has_value());
  end(source);
  auto again = start(copy_spec("source"));
  ASSERT_TRUE(shake_hands(again.channel));
  EXPECT_THAT(answer(again, "list /"), HasSubstr("before"));
  end(again);
}

TEST_P(SnapshotTest, ACopyCanHaveALargerDisk) {
  auto source = start(host_->spec("source"));
  ASSERT_TRUE(shake_hands(source.channel));
  ASSERT_EQ(answer(source, "fill /a 20"), "20 ok");
  snapshot(source);
  auto spec = copy_spec("copy");
  spec.limits.disk_bytes *= 3;
  auto copy = start(spec);
  ASSERT_TRUE(shake_hands(copy.channel));
  EXPECT_EQ(answer(copy, "fill /b 100"), "100 ok");
  EXPECT_THAT(answer(copy, "fill /c 200"), HasSubstr("ENOSPC"));
  end(source);
  end(copy);
}

TEST_P(SnapshotTest, AnotherEngineIsRefused) {
  auto source = start(host_->spec("source"));
  ASSERT_TRUE(shake_hands(source.channel));
  auto needs = snapshot(source).needs;
  EXPECT_EQ(needs.empty(), !keeps_memory());
  for (auto& [name, value] : needs) {
    auto other = needs;
    other[name] = "another";
    auto checked = runtime().check_needs(other);
    ASSERT_FALSE(checked.has_value()) << name;
    EXPECT_EQ(checked.error().code, Code::kSnapshotMismatch);
  }
  end(source);
}

TEST_P(SnapshotTest, AnImageThatIsNoneStartsNothingAndLeavesNothing) {
  auto warm = start(host_->spec("warm"));
  end(warm);
  const auto before = count_objects(host_->config());
  auto spec = copy_spec("copy");
  auto started = runtime().start(spec, runtime().plan(spec), after(120s));
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, Code::kStartFailed);
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
}

TEST_P(SnapshotTest, ManyCopiesLeaveNothing) {
  auto source = start(host_->spec("source"));
  ASSERT_TRUE(shake_hands(source.channel));
  snapshot(source);
  end(start(copy_spec("copy")));
  const auto before = count_objects(host_->config());
  for (int i = 0; i < 5; ++i) {
    auto copy = start(copy_spec("copy"));
    EXPECT_TRUE(shake_hands(copy.channel));
    end(copy);
  }
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
  end(source);
}

}  // namespace
}  // namespace glovebox::runtime
