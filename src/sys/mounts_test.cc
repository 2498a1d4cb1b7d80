// SPDX-License-Identifier: Apache-2.0
#include "sys/mounts.h"

#include <gtest/gtest.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/files.h"
#include "sys/userns.h"

extern "C" int mount(const char* source, const char* target, const char* type, unsigned long flags,
                     const void* data) noexcept;  // <sys/mount.h> clashes with <linux/mount.h>

namespace glovebox::sys {
namespace {

TEST(MountTable, ParsesEscapesOptionalFieldsAndBadLines) {
  auto entries = parse_mount_table(
      "36 35 98:0 /mnt1 /a\\040b rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"
      "not a mount line\n"
      "40 36 0:5 / /proc rw - proc proc rw\n");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].target, "/a b");
  EXPECT_EQ(entries[0].root, "/mnt1");
  EXPECT_EQ(entries[0].type, "ext3");
  EXPECT_EQ(entries[0].source, "/dev/root");
  EXPECT_EQ(entries[0].super_options, "rw,errors=continue");
  EXPECT_EQ(entries[1].target, "/proc");
}

TEST(MountTable, OfThisProcessHasARoot) {
  EXPECT_TRUE(is_mount_point("/"));
  EXPECT_FALSE(is_mount_point("/no/such/mount"));
}

class MountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount";
    // A table of its own: others mount in the host's.
    ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
    ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  }
};

TEST_F(MountTest, DetachedMountIsInNoTableAndUsable) {
  auto before = mount_table().size();
  auto mount = new_mount("tmpfs", "test", {{"size", "64k"}}, MOUNT_ATTR_NODEV);
  ASSERT_TRUE(mount.has_value()) << mount.error().message;
  EXPECT_EQ(mount_table().size(), before);
  EXPECT_EQ(::mkdirat(mount->get(), "inside", 0700), 0);
}

TEST_F(MountTest, MappedOwnersAreTheNamespaces) {
  auto mount = new_mount("tmpfs", "test", {{"size", "64k"}}, 0);
  ASSERT_TRUE(mount.has_value());
  auto space = make_user_namespace(0x20000000, 65536);
  ASSERT_TRUE(space.has_value()) << space.error().message;
  ASSERT_TRUE(map_owners(*mount, *space));
  struct stat st{};
  ASSERT_EQ(::fstat(mount->get(), &st), 0);
  EXPECT_EQ(st.st_uid, 0x20000000u);
  EXPECT_FALSE(map_owners(*mount, *space).has_value());  // once only
}

TEST_F(MountTest, ErrorRepeatsWhatTheKernelSaid) {
  auto mount = new_mount("tmpfs", "test", {{"no_such_option", "1"}}, 0);
  ASSERT_FALSE(mount.has_value());
  EXPECT_NE(mount.error().message.find("no_such_option"), std::string::npos);
}

}  // namespace
}  // namespace glovebox::sys
