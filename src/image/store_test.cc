// SPDX-License-Identifier: Apache-2.0
#include "image/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "image/digest.h"
#include "image/packages.h"

namespace glovebox::image {
namespace {

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/glovebox-store-test-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
    ASSERT_TRUE(Store(dir_).make_layout());
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(dir_)); }

  Result<Manifest> publish(const std::string& name, const std::string& image) {
    const Store store(dir_);
    auto staging = store.make_staging();
    if (!staging) return fail(staging.error());
    std::ofstream(staging->path() + "/rootfs.erofs") << image;
    Manifest m;
    m.kind = "debian";
    m.packages = {{"bash", "5.2", "amd64"}};
    m.config.env = {{"A", "\"quoted\"\n"}};
    return store.publish(*staging, name, m);
  }

  std::string dir_;
};

TEST_F(StoreTest, PublishesWholeVersionsUnderNames) {
  const auto m = publish("base", "image one");
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->image_sha256, sha256_hex("image one"));
  EXPECT_EQ(m->image_bytes, 9u);
  const auto t = Templates(dir_).find("base");
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->version, m->version);
  EXPECT_EQ(t->package_count, 1u);
  EXPECT_EQ(t->config.env.at("A"), "\"quoted\"\n");
  EXPECT_EQ(iso_time(t->created_at), m->created_at);
  EXPECT_EQ((*Templates(dir_).packages(*t))[0].name, "bash");
  EXPECT_TRUE(Templates(dir_).verify(*t));
  EXPECT_TRUE(directory_names(dir_ + "/templates/tmp")->empty());
}

TEST_F(StoreTest, FindsByNameAndVersionPrefix) {
  const auto first = publish("base", "one"), second = publish("base", "two");
  ASSERT_TRUE(first && second);
  const Templates templates(dir_);
  EXPECT_EQ(templates.find("base")->version, second->version);
  EXPECT_EQ(templates.find("base@" + first->version.substr(0, 8))->version, first->version);
  EXPECT_EQ(templates.find("@" + second->version)->version, second->version);
  EXPECT_EQ(templates.find("nothing").error().code, Code::kTemplateNotFound);
  EXPECT_EQ(templates.find("nothing@" + first->version).error().code, Code::kTemplateNotFound);
  EXPECT_EQ(templates.find("base@ffffffffffffffff").error().code, Code::kTemplateNotFound);
  for (const char* bad :
       {"", "../x", "Base", "base@", "base@12", "base@zzzzzzzz", "@", "a/b", ".hidden"}) {
    EXPECT_EQ(templates.find(bad).error().code, Code::kInvalidArgument) << bad;
  }
}

TEST_F(StoreTest, NoticesChangedBytes) {
  const auto m = publish("base", "one");
  ASSERT_TRUE(m);
  const auto t = Templates(dir_).find("base");
  ::chmod(t->image_path.c_str(), 0644);
  std::ofstream(t->image_path) << "0ne";
  EXPECT_EQ(Templates(dir_).verify(*t).error().code, Code::kCorrupt);
  std::ofstream(Store(dir_).version_dir(m->version) + "/manifest.json") << "{\"schema\":1";
  EXPECT_EQ(Templates(dir_).find("base").error().code, Code::kCorrupt);
  EXPECT_TRUE(Templates(dir_).list()->empty()) << "one broken template must not hide the others";
  std::ofstream(Store(dir_).version_dir(m->version) + "/manifest.json") << "{\"schema\":2}";
  EXPECT_EQ(Templates(dir_).find("base").error().code, Code::kUnsupported);
}

TEST_F(StoreTest, StaleStagingGoesAndLiveStagingStays) {
  const Store store(dir_);
  auto live = store.make_staging();
  ASSERT_TRUE(live);
  // What a killed build leaves: the same directory without a lock holder.
  ASSERT_TRUE(make_directories(dir_ + "/templates/tmp/dead/root/etc", 0755));
  std::ofstream(dir_ + "/templates/tmp/dead/root/etc/file") << "x";
  auto other = store.make_staging();
  ASSERT_TRUE(other);
  EXPECT_FALSE(path_exists(dir_ + "/templates/tmp/dead"));
  EXPECT_TRUE(path_exists(live->path()));
}

TEST_F(StoreTest, NameLocksSerialiseBuildsOfOneName) {
  const Store store(dir_);
  std::atomic<int> inside{0}, most{0}, waits{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        const auto lock = store.lock_name("base", [&] { ++waits; });
        most = std::max(most.load(), ++inside);
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(most, 1);
  EXPECT_TRUE(store.lock_name("other", [] { ADD_FAILURE() << "another name does not wait"; }));
}

TEST_F(StoreTest, ConcurrentPublishersLeaveAWholeStore) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        const auto m = publish("t" + std::to_string(i % 3), "image " + std::to_string(round % 4));
        if (!m) ++failures;
        if (i == 0 && !Store(dir_).collect_garbage(nullptr)) ++failures;
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(failures, 0);
  const auto all = Templates(dir_).list();
  ASSERT_EQ(all->size(), 3u);
  for (const auto& t : *all) EXPECT_TRUE(Templates(dir_).verify(t));
}

TEST(Files, RemoveTreeDoesNotFollowLinks) {
  char dir[] = "/tmp/glovebox-files-test-XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  const std::string at = dir;
  ASSERT_TRUE(make_directories(at + "/outside/kept", 0755));
  ASSERT_TRUE(make_directories(at + "/tree/a/b", 0755));
  ASSERT_EQ(::symlink("../../outside", (at + "/tree/a/link").c_str()), 0);
  ASSERT_TRUE(remove_tree(at + "/tree"));
  EXPECT_FALSE(path_exists(at + "/tree"));
  EXPECT_TRUE(path_exists(at + "/outside/kept"));
  EXPECT_TRUE(remove_tree(at + "/absent"));
  EXPECT_TRUE(remove_tree(at));
}

TEST(Files, RemoveTreeGoesDeeperThanDescriptorsAndPaths) {
  char dir[] = "/tmp/glovebox-files-test-XXXXXX";
  ASSERT_NE(::mkdtemp(dir), nullptr);
  UniqueFd at(::open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 2500; ++i) {
    ASSERT_EQ(::mkdirat(at.get(), "d", 0755), 0) << i;
    ASSERT_EQ(::mkdirat(at.get(), "sibling", 0755), 0);
    at.reset(::openat(at.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
  const auto gone = remove_tree(dir);
  EXPECT_TRUE(gone) << gone.error().message;
  EXPECT_FALSE(path_exists(dir));
}

TEST(Packages, ReadsTheListsOfDebianAndAlpine) {
  const auto debian = parse_dpkg_status(
      "Package: a\nStatus: install ok installed\nVersion: 1:2-3\nArchitecture: amd64\nDescription: "
      "x\n Package: no\n\n"
      "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: b\nStatus: install "
      "ok installed\nVersion: 2\nArchitecture: all\n");
  ASSERT_EQ(debian.size(), 2u);
  EXPECT_EQ(debian[0].version, "1:2-3");
  EXPECT_EQ(debian[1].name, "b");
  const auto alpine =
      parse_apk_installed("C:Q1\nP:musl\nV:1.2-r3\nA:x86_64\nF:lib\n\nP:zlib\nV:1\nA:x86_64\n");
  ASSERT_EQ(alpine.size(), 2u);
  EXPECT_EQ(alpine[0].name + alpine[0].version, "musl1.2-r3");
}

TEST(Digest, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_FALSE(is_sha256_hex("E3B0"));
}

}  // namespace
}  // namespace glovebox::image
