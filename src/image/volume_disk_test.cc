// SPDX-License-Identifier: Apache-2.0
#include "image/volume_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "base/unique_fd.h"
#include "image/files.h"
#include "image/test_archive.h"
#include "sys/ext4.h"
#include "sys/loop.h"

namespace glovebox::image {
namespace {

constexpr uint64_t kMiB = 1 << 20;
using testing::tar;
using testing::TarEntry;

TarEntry file_of(std::string name, std::string content, unsigned mode = 0644, unsigned uid = 0,
                 unsigned gid = 0) {
  return {std::move(name), '0', std::move(content), "", mode, uid, gid};
}
TarEntry symlink(std::string name, std::string target) {
  return {std::move(name), '2', "", std::move(target)};
}
TarEntry hardlink(std::string name, std::string target) {
  return {std::move(name), '1', "", std::move(target)};
}
TarEntry directory(std::string name) {
  return {std::move(name), '5', "", "", 0750};
}

class VolumeDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: mounts not proven";
    char place[] = "/var/tmp/glovebox-volume-XXXXXX";
    ASSERT_NE(::mkdtemp(place), nullptr);
    directory_ = place;
    disk_ = directory_ + "/disk.img";
    ASSERT_TRUE(make_volume_disk(disk_, 32 * kMiB));
  }
  void TearDown() override {
    if (directory_.empty()) return;
    EXPECT_TRUE(sys::wait_unmounted(disk_));
    EXPECT_TRUE(sys::loops_below(directory_).empty());
    EXPECT_TRUE(remove_tree(directory_));
  }
  UniqueFd file(const std::string& content) {
    UniqueFd fd(::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    EXPECT_TRUE(write_fd(fd.get(), content, "archive"));
    ::lseek(fd.get(), 0, SEEK_SET);
    return fd;
  }
  Result<void> import(const std::string& archive) {
    return import_volume_disk(disk_, file(archive).get());
  }
  std::string exported() {
    const auto out = file("");
    const auto done = export_volume_disk(disk_, out.get());
    EXPECT_TRUE(done) << (done ? "" : done.error().message);
    ::lseek(out.get(), 0, SEEK_SET);
    return read_fd(out.get(), 1 << 28, "archive").value_or("");
  }
  // Of one file in it, by its mount.
  std::optional<std::string> content(const std::string& name) {
    const auto mount = sys::mount_ext4(disk_, true);
    EXPECT_TRUE(mount);
    const UniqueFd fd(::openat(mount->get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return std::nullopt;
    return read_fd(fd.get(), 1 << 26, name).value_or("");
  }

  std::string directory_, disk_;
};

TEST_F(VolumeDisk, IsEmptyAndOpenToAll) {
  const auto mount = sys::mount_ext4(disk_, true);
  ASSERT_TRUE(mount);
  struct stat st{};
  ASSERT_EQ(::fstatat(mount->get(), ".", &st, 0), 0);
  EXPECT_EQ(st.st_mode & 07777, 0777u);
  EXPECT_EQ(st.st_uid, 1000u);
  EXPECT_NE(::faccessat(mount->get(), "lost+found", F_OK, 0), 0);
}

TEST_F(VolumeDisk, GoesOutAndInAgain) {
  ASSERT_TRUE(import(tar({directory("./"), file_of("./a/b", "inside", 0640, 1000, 33),
                          symlink("./a/l", "../../../etc/passwd"), hardlink("./a/h", "./a/b")})));
  const std::string first = exported();
  ASSERT_FALSE(first.empty());
  ASSERT_TRUE(remove_tree(disk_));
  ASSERT_TRUE(make_volume_disk(disk_, 32 * kMiB));
  const auto again = import(first);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(content("a/b"), "inside");
  EXPECT_EQ(content("a/h"), "inside");
  const auto mount = sys::mount_ext4(disk_, true);
  struct stat b{}, h{};
  ASSERT_EQ(::fstatat(mount->get(), "a/b", &b, 0), 0);
  ASSERT_EQ(::fstatat(mount->get(), "a/h", &h, 0), 0);
  EXPECT_EQ(b.st_ino, h.st_ino);
  EXPECT_EQ(b.st_uid, 1000u);
  EXPECT_EQ(b.st_gid, 33u);
  EXPECT_EQ(b.st_mode & 07777, 0640u);
}

TEST_F(VolumeDisk, RefusesHostileArchivesAndStaysWhatItWas) {
  ASSERT_TRUE(import(tar({file_of("kept", "old")})));
  const std::map<std::string, std::pair<std::string, Code>> cases{
      {"leaves upwards", {tar({file_of("kept", "new"), file_of("../out", "x")}), Code::kCorrupt}},
      {"links out", {tar({hardlink("h", "../../etc/passwd")}), Code::kCorrupt}},
      {"foreign ids", {tar({file_of("kept", "new", 0644, 70'000, 0)}), Code::kUnsupported}},
      {"too large",
       {tar({file_of("kept", "new"), file_of("big", std::string(40 * kMiB, 'x'))}),
        Code::kDiskFull}},
      {"cut short",
       {tar({file_of("kept", "new"), file_of("b", std::string(100'000, 'x'))}).substr(0, 50'000),
        Code::kCorrupt}},
      {"no tar", {std::string(100'000, 'q'), Code::kCorrupt}},
  };
  for (const auto& [name, hostile] : cases) {
    const auto done = import(hostile.first);
    ASSERT_FALSE(done) << name;
    EXPECT_EQ(done.error().code, hostile.second) << name << ": " << done.error().message;
    EXPECT_EQ(content("kept"), "old") << name;
    EXPECT_FALSE(path_exists(disk_ + ".new")) << name;
  }
}

TEST_F(VolumeDisk, ALinkInItIsNoWayOut) {
  ASSERT_TRUE(import(tar({symlink("etc", "/etc"), symlink("up", "../../..")})));
  const std::string marker = "glovebox-volume-test-" + std::to_string(::getpid());
  (void)import(tar({file_of("etc/" + marker, "x"), file_of("up/" + marker, "y")}));
  EXPECT_FALSE(path_exists("/etc/" + marker));
  EXPECT_FALSE(path_exists("/" + marker));
}

TEST_F(VolumeDisk, NamesOfLayersMeanNothing) {
  ASSERT_TRUE(import(tar({file_of("a", "1")})));
  ASSERT_TRUE(import(tar({file_of(".wh.a", "2"), file_of(".wh..wh..opq", "3")})));
  EXPECT_EQ(content("a"), "1");
  EXPECT_EQ(content(".wh.a"), "2");
}

TEST_F(VolumeDisk, Grows) {
  ASSERT_TRUE(import(tar({file_of("a", std::string(20 * kMiB, 'x'))})));
  const auto before = sys::ext4_use(disk_);
  ASSERT_TRUE(before);
  EXPECT_GE(*before, 20 * kMiB);
  EXPECT_LT(*before, 24 * kMiB);
  ASSERT_TRUE(grow_volume_disk(disk_, 96 * kMiB));
  EXPECT_TRUE(grow_volume_disk(disk_, 64 * kMiB)) << "is large enough";
  ASSERT_TRUE(import(tar({file_of("b", std::string(40 * kMiB, 'x'))})));
  EXPECT_EQ(content("a")->size(), 20 * kMiB);
}

TEST_F(VolumeDisk, HolesStayHoles) {
  {
    const auto mount = sys::mount_ext4(disk_, false);
    const UniqueFd fd(::openat(mount->get(), "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(::pwrite(fd.get(), "end", 3, 200 * static_cast<off_t>(kMiB)), 3);
    const UniqueFd empty(::openat(mount->get(), "hole", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    ASSERT_EQ(::ftruncate(empty.get(), 100 * static_cast<off_t>(kMiB)), 0);
  }
  ASSERT_TRUE(sys::wait_unmounted(disk_));
  const std::string archive = exported();
  EXPECT_LT(archive.size(), kMiB);
  ASSERT_TRUE(import(archive));
  const auto mount = sys::mount_ext4(disk_, true);
  struct stat st{};
  ASSERT_EQ(::fstatat(mount->get(), "sparse", &st, 0), 0);
  EXPECT_EQ(static_cast<uint64_t>(st.st_size), 200 * kMiB + 3);
  EXPECT_LT(static_cast<uint64_t>(st.st_blocks) * 512, kMiB);
  ASSERT_EQ(::fstatat(mount->get(), "hole", &st, 0), 0);
  EXPECT_EQ(static_cast<uint64_t>(st.st_size), 100 * kMiB);
}

}  // namespace
}  // namespace glovebox::image
