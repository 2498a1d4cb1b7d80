// SPDX-License-Identifier: Apache-2.0
#include "sandbox/volume_catalog.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::testing::eventually;
using testing::FakeRuntime;
using testing::World;

constexpr uint64_t kMiB = 1 << 20;

class VolumeCatalogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: mounts not proven";
  }
};

Awaitable<std::string> make(World& w, std::string name, uint64_t bytes = 16 * kMiB) {
  const auto made =
      co_await w.manager().volumes().create_volume(w.caller, {name, bytes, {}, {}}, false);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  co_return made ? made->info.id : "";
}
CreateSpec with(const std::string& volume, bool read_only = false) {
  CreateSpec spec;
  spec.volumes = {{volume, "/data", read_only}};
  return spec;
}
VolumeInfo info(World& w, const std::string& ref) {
  return w.manager().volumes().get_volume(w.caller, ref).value();
}

TEST_F(VolumeCatalogTest, OneWritesOrManyRead) {
  World w;
  w.run([&]() -> Awaitable<void> {
    const std::string id = co_await make(w, "a");
    const auto writer = co_await w.create(with("a"));
    EXPECT_EQ(writer->volumes, (std::vector<VolumeMount>{{id, "/data", false}}));
    EXPECT_EQ(info(w, "a").writer, writer->id);
    for (const bool read_only : {false, true}) {
      const auto second = co_await w.create(with(id, read_only));
      EXPECT_EQ(second.error().code, Code::kVolumeInUse);
      EXPECT_EQ(second.error().details.at("sandbox"), writer->id);
    }
    EXPECT_EQ((co_await w.manager().volumes().delete_volume(w.caller, id)).error().code,
              Code::kVolumeInUse);
    EXPECT_EQ((co_await w.manager().volumes().grow_volume(w.caller, id, 32 * kMiB)).error().code,
              Code::kVolumeInUse);
    (void)co_await w.manager().kill(w.caller, writer->id);
    const auto reader = co_await w.create(with("a", true));
    EXPECT_TRUE((co_await w.create(with("a", true))).has_value());
    EXPECT_EQ(info(w, id).readers.size(), 2u);
    EXPECT_EQ((co_await w.create(with("a"))).error().code, Code::kVolumeInUse);
    EXPECT_TRUE(reader->volumes.at(0).read_only);
  });
}

TEST_F(VolumeCatalogTest, IsFreeAgainAfterAStartThatFailed) {
  World w;
  w.run([&]() -> Awaitable<void> {
    co_await make(w, "a");
    w.runtime().fail_at = FakeRuntime::Step::kStart;
    EXPECT_FALSE((co_await w.create(with("a"))).has_value());
    w.runtime().fail_at = FakeRuntime::Step::kNone;
    EXPECT_TRUE(co_await eventually([&] { return info(w, "a").writer.empty(); }));
    EXPECT_TRUE((co_await w.create(with("a"))).has_value());
  });
}

TEST_F(VolumeCatalogTest, BelongsToWhoHadItWhenTheDaemonComesBack) {
  World w;
  std::string box;
  w.run([&]() -> Awaitable<void> {
    co_await make(w, "a");
    co_await make(w, "b");
    box = (co_await w.create(with("a")))->id;
  });
  w.restart_without_recovery();
  w.run([&]() -> Awaitable<void> {
    EXPECT_EQ(info(w, "a").writer, box);
    EXPECT_EQ((co_await w.create(with("a"))).error().code, Code::kVolumeInUse);
    EXPECT_TRUE((co_await w.create(with("b"))).has_value());
  });
  w.runtime().kill(box);
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_TRUE(co_await eventually([&] { return info(w, "a").writer.empty(); }));
  });
}

TEST_F(VolumeCatalogTest, TheShareOfATenantHoldsForCallsAtOnce) {
  Config config;
  config.volumes.count = 2;
  config.volumes.total_bytes = 40 * kMiB;
  World w(config);
  w.run([&]() -> Awaitable<void> {
    int made = 0, refused = 0;
    for (int i = 0; i < 5; ++i) {
      auto task = [](World& world, int n, int& yes, int& no) -> Awaitable<void> {
        auto done = co_await world.manager().volumes().create_volume(
            world.caller, {"v" + std::to_string(n), 16 * kMiB, {}, {}}, false);
        ++(done ? yes : no);
        if (!done) EXPECT_EQ(done.error().code, Code::kCapacity);
      };
      spawn(w.executor(), "test", task(w, i, made, refused));
    }
    EXPECT_TRUE(co_await eventually([&] { return made + refused == 5; }));
    EXPECT_EQ(made, 2);
    const auto grown = co_await w.manager().volumes().grow_volume(w.caller, "v0", 32 * kMiB);
    EXPECT_EQ(grown.error().code, Code::kCapacity);
  });
}

TEST_F(VolumeCatalogTest, HalfMadeAndHalfRemovedOnesAreGoneAfterARestart) {
  World w;
  const std::string files = w.config().data_dir + "/volumes/";
  w.run([&]() -> Awaitable<void> {
    co_await make(w, "whole");
    std::filesystem::create_directories(files + "vol-nobody");
    std::filesystem::create_directories(files + "vol-stranger");
    std::ofstream(files + "vol-stranger/disk.img") << "data";
    // Work of daemons that died in the middle of it.
    auto half = [](World& world) -> Awaitable<void> {
      (void)co_await world.manager().volumes().create_volume(world.caller,
                                                             {"half", 512 * kMiB, {}, {}}, false);
    };
    spawn(w.executor(), "test", half(w));
    co_await sleep_for(3ms);
  });
  w.restart();
  w.run([&]() -> Awaitable<void> {
    EXPECT_FALSE(std::filesystem::exists(files + "vol-nobody"));
    EXPECT_TRUE(std::filesystem::remove_all(files + "vol-stranger") == 2) << "nobody said that it may go";
    const auto there = w.manager().volumes().list_volumes(w.caller, 10, "")->items;
    const auto count = std::distance(std::filesystem::directory_iterator(files), {});
    EXPECT_EQ(static_cast<size_t>(count), there.size());
    EXPECT_EQ(info(w, "whole").bytes, 16 * kMiB);
    EXPECT_TRUE(co_await eventually([&] {
      return w.manager().volumes().get_volume(w.caller, "half").has_value() == (there.size() == 2);
    }));
    (void)co_await w.manager().volumes().delete_volume(w.caller, "half");
    co_await make(w, "half");
  });
}

TEST(VolumePath, MayNotBeInTheWayOfTheSystem) {
  for (const char* good : {"/data", "/workspace", "/home/user/x", "/srv/a b/c", "/var/lib/x",
                           "/procedure", "/usr/share/x"})
    EXPECT_TRUE(check_mount_path(good)) << good;
  for (const char* bad : {"",           "x",    "/",      "//x",   "/x/",           "/x//y",
                          "/x/../y",    "/..",  "/.",     "/proc", "/proc/1",       "/dev/shm",
                          "/sys",       "/etc", "/etc/x", "/run",  "/run/glovebox", "/tmp/x",
                          "/.glovebox", "/usr", "/lib",   "/x\ny", "/\x80"}) {
    const auto checked = check_mount_path(bad);
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().code, Code::kInvalidPath);
  }
}

}  // namespace
}  // namespace glovebox::sandbox
