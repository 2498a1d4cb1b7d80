// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "image/build.h"
#include "image/digest.h"
#include "image/files.h"
#include "image/recipe.h"
#include "image/store.h"

// Real Debian builds: half a minute each and a mirror needed, hence labelled "slow".
namespace glovebox::image {
namespace {

class DebianBuild : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: Debian builds not proven";
    if (!need_program("mmdebstrap", "mmdebstrap"))
      GTEST_SKIP() << "needs mmdebstrap: Debian builds not proven";
    char dir[] = "/tmp/glovebox-build-test-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
    ASSERT_TRUE(Store(dir_).make_layout());
  }
  void TearDown() override {
    if (!dir_.empty()) EXPECT_TRUE(remove_tree(dir_));
  }

  Result<Manifest> build_minimal(const ProgressFn& progress) {
    GB_TRY(auto recipe, load_recipe("base"));
    recipe.packages = {"ca-certificates"};
    const Store store(dir_);
    GB_TRY(const auto staging, store.make_staging());
    GB_TRY(auto built, build_debian(recipe, {}, staging, dir_ + "/cache/apt", progress));
    return store.publish(staging, "minimal", std::move(built));
  }

  std::string dir_;
};

// Everything about the host that a build could disturb.
std::string host_state() {
  return sha256_hex(read_file("/var/lib/dpkg/status", 64 << 20).value_or("") +
                    read_file("/etc/passwd", 1 << 20).value_or("") +
                    read_file("/proc/self/mounts", 1 << 20).value_or("") +
                    read_file("/etc/resolv.conf", 1 << 20).value_or(""));
}

TEST_F(DebianBuild, GivesTheSameImageTwiceAndLeavesTheHostAlone) {
  const std::string before = host_state();
  std::set<std::string> phases;
  const auto first = build_minimal([&](const Progress& p) { phases.insert(p.phase); });
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(phases, (std::set<std::string>{"configure", "download", "image", "resolve", "unpack"}));
  EXPECT_GT(first->packages.size(), 50u);
  EXPECT_NE(std::find(first->suites.begin(), first->suites.end(), "trixie"), first->suites.end());
  EXPECT_GT(directory_names(dir_ + "/cache/apt/base")->size(), 50u);
  phases.clear();
  const auto second = build_minimal([&](const Progress& p) { phases.insert(p.phase); });
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->version, first->version);
  EXPECT_EQ(host_state(), before);
}

TEST_F(DebianBuild, AKilledBuildTakesAllItsProcessesAlongAndIsCleanedUp) {
  const pid_t builder = ::fork();
  ASSERT_GE(builder, 0);
  if (builder == 0) {
    (void)build_minimal(nullptr);
    ::_exit(0);
  }
  // Until it unpacks: by then apt, dpkg and their children have run inside.
  const std::string tmp = dir_ + "/templates/tmp";
  const auto staging = [&] { return directory_names(tmp).value_or(std::vector<std::string>()); };
  for (int i = 0; i < 6000 && (staging().empty() ||
                               !path_exists(tmp + "/" + staging()[0] + "/root/usr/bin/env"));
       ++i)
    ::usleep(50'000);
  ASSERT_FALSE(staging().empty());
  ::kill(builder, SIGKILL);
  ::waitpid(builder, nullptr, 0);
  const auto users_of_staging = [&] {
    int count = 0;
    for (const auto& e : std::filesystem::directory_iterator("/proc")) {
      std::error_code error;
      const auto root = std::filesystem::read_symlink(e.path() / "root", error);
      const auto command = read_file(e.path() / "cmdline", 1 << 20);
      if (root.string().rfind(tmp, 0) == 0 || (command && command->find(tmp) != std::string::npos))
        ++count;
    }
    return count;
  };
  for (int i = 0; i < 1200 && users_of_staging() > 0; ++i) ::usleep(50'000);
  EXPECT_EQ(users_of_staging(), 0);
  ASSERT_TRUE(Store(dir_).collect_garbage(nullptr));
  EXPECT_TRUE(staging().empty());
}

TEST_F(DebianBuild, ExplainsAnUnreachableMirror) {
  BuildOptions options{.mirror = "http://127.0.0.1:9/debian"};
  const auto t = Templates(dir_).build("base", options, nullptr);
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().code, Code::kUnavailable);
  EXPECT_NE(t.error().message.find("127.0.0.1:9"), std::string::npos) << t.error().message;
  EXPECT_TRUE(directory_names(dir_ + "/templates/tmp")->empty());
}

// GLOVEBOX_TEST_DATA_DIR: a data directory in which "base" has been built.
TEST(BaseTemplate, IsWholeAndUpToDateAtOnce) {
  const char* data = std::getenv("GLOVEBOX_TEST_DATA_DIR");
  if (data == nullptr)
    GTEST_SKIP() << "needs GLOVEBOX_TEST_DATA_DIR: the base template is not checked";
  Templates templates(data);
  const auto t = templates.find("base");
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_TRUE(templates.verify(*t));
  std::set<std::string> phases;
  const auto again = templates.build("base", {}, [&](const Progress& p) { phases.insert(p.phase); });
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->version, t->version);
  for (const char* phase : {"resolve", "download", "unpack", "configure", "image"}) EXPECT_FALSE(phases.contains(phase)) << phase;
  std::set<std::string> names;
  const auto packages = templates.packages(*t);
  for (const auto& p : *packages) names.insert(p.name);
  for (const char* wanted : {"python3", "nodejs", "npm", "git", "gcc", "bash", "vim-tiny"})
    EXPECT_TRUE(names.contains(wanted)) << wanted;
}

}  // namespace
}  // namespace glovebox::image
