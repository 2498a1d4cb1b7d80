// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "sys/files.h"

namespace glovebox::sys {
namespace {

using namespace std::chrono_literals;

// A directory of plain files that stands for a cgroup v2 mount: shows what would be written where,
// on hosts that have only v1.
class CgroupV2Files : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/glovebox-cgroup-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    root_ = name;
    for (const char* group : {"", "/glovebox", "/glovebox/inst", "/glovebox/inst/box"}) {
      ASSERT_TRUE(make_directories(root_ + group, 0755));
      for (const char* file : {"cgroup.subtree_control", "cgroup.procs", "cgroup.freeze",
                               "cgroup.events", "cgroup.kill", "memory.max", "memory.swap.max",
                               "memory.oom.group", "pids.max", "cpu.max"}) {
        ASSERT_TRUE(put_file(root_ + group + "/" + file, "", 0644));
      }
    }
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(root_)); }
  std::string content(const char* file) {
    return read_file(root_ + "/glovebox/inst/box/" + file).value();
  }
  CgroupTree tree() { return CgroupTree({{"unified", root_}}, "glovebox/inst"); }
  std::string root_;
};

TEST_F(CgroupV2Files, WritesEveryLimit) {
  ASSERT_TRUE(tree().create("box", {1.5, 1 << 30, 100, true}));
  EXPECT_EQ(content("memory.max"), "1073741824");
  EXPECT_EQ(content("memory.swap.max"), "0");
  EXPECT_EQ(content("memory.oom.group"), "1");
  EXPECT_EQ(content("pids.max"), "100");
  EXPECT_EQ(content("cpu.max"), "150000 100000");
}

TEST_F(CgroupV2Files, FreezeWaitsForTheKernelAndGivesUpThawed) {
  ASSERT_TRUE(
      put_file(root_ + "/glovebox/inst/box/cgroup.events", "populated 1\nfrozen 1\n", 0644));
  EXPECT_TRUE(tree().freeze("box"));
  EXPECT_EQ(content("cgroup.freeze"), "1");
  ASSERT_TRUE(
      put_file(root_ + "/glovebox/inst/box/cgroup.events", "populated 1\nfrozen 0\n", 0644));
  EXPECT_EQ(tree().freeze("box").error().code, Code::kTimeout);
  EXPECT_EQ(content("cgroup.freeze"), "0");
  EXPECT_EQ(tree().freeze("none").error().code, Code::kNotFound);
}

TEST_F(CgroupV2Files, ReadsUsage) {
  std::string box = root_ + "/glovebox/inst/box/";
  ASSERT_TRUE(
      put_file(box + "cpu.stat", "usage_usec 1500\nnr_throttled 2\nthrottled_usec 70\n", 0644));
  ASSERT_TRUE(put_file(box + "memory.current", "4096\n", 0644));
  ASSERT_TRUE(put_file(box + "memory.peak", "8192\n", 0644));
  ASSERT_TRUE(put_file(box + "memory.events", "oom 3\noom_kill 2\n", 0644));
  ASSERT_TRUE(put_file(box + "pids.current", "7\n", 0644));
  auto usage = tree().usage("box");
  ASSERT_TRUE(usage.has_value());
  EXPECT_EQ(usage->cpu_us, 1500u);
  EXPECT_EQ(usage->throttled_us, 70u);
  EXPECT_EQ(usage->memory_bytes, 4096u);
  EXPECT_EQ(usage->memory_peak_bytes, 8192u);
  EXPECT_EQ(usage->oom_kills, 2u);
  EXPECT_EQ(usage->processes, 7u);
}

TEST_F(CgroupV2Files, EntersThroughProcsAndListsGroupsOnly) {
  EXPECT_EQ(tree().entries("box").value().size(), 1u);
  EXPECT_EQ(tree().names(), std::vector<std::string>{"box"});
}

class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to make cgroups";
    tree_ = CgroupTree::detect("glovebox/test-" + std::to_string(::getpid()));
    if (!tree_) GTEST_SKIP() << tree_.error().message;
  }
  void TearDown() override {
    if (tree_) tree_->remove_parents();
  }

  // A child that has entered the group by itself, in every hierarchy, and spins.
  pid_t spin_inside(const std::string& name) {
    auto entries = tree_->entries(name).value();
    int inside[2];
    EXPECT_EQ(::pipe2(inside, O_CLOEXEC), 0);
    pid_t pid = ::fork();
    if (pid == 0) {
      for (const auto& entry : entries) {
        if (::write(entry.get(), "0", 1) != 1) ::_exit(1);
      }
      ::close(inside[0]);
      ::close(inside[1]);
      for (;;) {
      }
    }
    ::close(inside[1]);
    char none;
    EXPECT_EQ(::read(inside[0], &none, 1), 0);
    ::close(inside[0]);
    return pid;
  }

  Result<CgroupTree> tree_ = fail(Code::kInternal, "not detected");
};

TEST_F(CgroupTest, HoldsFreezesCountsAndKills) {
  ASSERT_TRUE(tree_->create("box", {1, 64 << 20, 10, false}));
  pid_t pid = spin_inside("box");
  EXPECT_EQ(tree_->processes("box"), std::vector<pid_t>{pid});
  ASSERT_TRUE(tree_->freeze("box"));
  EXPECT_TRUE(tree_->is_frozen("box").value());
  uint64_t cpu = tree_->usage("box")->cpu_us;
  ::usleep(20000);
  EXPECT_EQ(tree_->usage("box")->cpu_us, cpu);
  EXPECT_FALSE(tree_->kill_once("box"));  // although frozen
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(tree_->kill_once("box"));
  EXPECT_TRUE(tree_->remove("box", 60s));
  EXPECT_FALSE(tree_->exists("box"));
  EXPECT_TRUE(tree_->remove("box", 60s));
}

TEST_F(CgroupTest, IsMadeWhileOthersRemoveEmptyParents) {
  std::jthread other([&](std::stop_token stop) {
    for (; !stop.stop_requested(); ::usleep(200)) tree_->remove_parents();
  });
  for (int i = 0; i < 100; ++i) {
    auto made = tree_->create("box", {1, 64 << 20, 10, false});
    ASSERT_TRUE(made) << i << ": " << made.error().message;
    ASSERT_TRUE(tree_->remove("box", 60s));
  }
}

TEST_F(CgroupTest, ReusedGroupTakesHigherAndLowerLimits) {
  for (uint64_t mib : {64, 256, 32}) {
    auto made = tree_->create("box", {1, mib << 20, 10, false});
    EXPECT_TRUE(made.has_value()) << mib << ": " << made.error().message;
  }
  EXPECT_TRUE(tree_->remove("box", 60s));
}

// The parts of cgroup v2 that need no controller, on a real kernel: a host with v1 controllers
// still has the unified tree.
TEST_F(CgroupTest, UnifiedTreeFreezesAndKills) {
  const std::string mount = "/sys/fs/cgroup/unified";
  std::string parent = "glovebox-test-" + std::to_string(::getpid());
  std::string box = mount + "/" + parent + "/box";
  if (!exists(mount + "/cgroup.procs") || !make_directories(box, 0755))
    GTEST_SKIP() << "no writable cgroup2 at " << mount;
  tree_ = CgroupTree({{"unified", mount}}, parent);
  pid_t pid = spin_inside("box");
  ASSERT_TRUE(tree_->freeze("box"));
  EXPECT_TRUE(tree_->is_frozen("box").value());
  EXPECT_FALSE(tree_->kill_once("box"));
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(tree_->kill_once("box"));
  EXPECT_TRUE(tree_->remove("box", 60s));
}

TEST_F(CgroupTest, UnknownGroupIsNotFound) {
  EXPECT_EQ(tree_->thaw("none").error().code, Code::kNotFound);
  EXPECT_EQ(tree_->usage("none").error().code, Code::kNotFound);
  EXPECT_TRUE(tree_->processes("none").empty());
  EXPECT_TRUE(tree_->kill_once("none"));
}

}  // namespace
}  // namespace glovebox::sys
