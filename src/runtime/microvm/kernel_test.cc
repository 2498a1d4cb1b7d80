// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/kernel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include "sys/files.h"

namespace glovebox::runtime::microvm {
namespace {

using ::testing::HasSubstr;

class GuestKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(data_dir_.data()), nullptr);
    ASSERT_TRUE(sys::make_directories(directory(), 0755));
    ASSERT_EQ(::symlink("abc", (data_dir_ + "/kernels/current").c_str()), 0);
    for (const char* name : {"vmlinux", "modules.cpio", "release", "digest"})
      ASSERT_TRUE(sys::put_file(directory() + "/" + name, std::string(name) + "\n", 0644));
    ASSERT_TRUE(sys::put_file(data_dir_ + "/agent", "an agent", 0755));
  }
  void TearDown() override { (void)sys::remove_tree(data_dir_); }

  std::string directory() const { return data_dir_ + "/kernels/abc"; }
  std::vector<std::string> archives() const {
    std::vector<std::string> found;
    for (const auto& name : sys::list_directory(directory()))
      if (name.find("initramfs") != name.npos) found.push_back(name);
    return found;
  }
  static void make_old(const std::string& path, int days) {
    const timespec then{::time(nullptr) - days * 86400, 0}, times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  std::string data_dir_ = ::testing::TempDir() + "/kernel-XXXXXX";
};

TEST_F(GuestKernelTest, CarriesTheAgent) {
  const auto kernel = guest_kernel(data_dir_, data_dir_ + "/agent");
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ(kernel->release, "release");
  const auto archive = sys::read_file(kernel->initramfs, 1 << 20);
  ASSERT_TRUE(archive);
  EXPECT_THAT(*archive, HasSubstr("an agent"));
  EXPECT_THAT(*archive, HasSubstr("modules.cpio\n"));
  EXPECT_EQ(archives().size(), 1u) << "nothing half made is left beside it";
}

TEST_F(GuestKernelTest, AnArchiveThatIsGoneIsMadeAgain) {
  const auto first = guest_kernel(data_dir_, data_dir_ + "/agent");
  ASSERT_TRUE(first);
  ASSERT_EQ(::unlink(first->initramfs.c_str()), 0);
  const auto second = guest_kernel(data_dir_, data_dir_ + "/agent");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->initramfs, first->initramfs);
  EXPECT_TRUE(sys::exists(second->initramfs));
}

TEST_F(GuestKernelTest, ArchivesThatNobodyUsedForAWeekGo) {
  for (const char* name : {"initramfs-aaaa.cpio", "initramfs-bbbb.cpio", ".initramfs-17"})
    ASSERT_TRUE(sys::put_file(directory() + "/" + name, "x", 0644));
  make_old(directory() + "/initramfs-aaaa.cpio", 8);
  make_old(directory() + "/initramfs-bbbb.cpio", 6);
  make_old(directory() + "/.initramfs-17", 8);
  const auto kernel = guest_kernel(data_dir_, data_dir_ + "/agent");
  ASSERT_TRUE(kernel);
  EXPECT_THAT(archives(),
              ::testing::UnorderedElementsAre("initramfs-bbbb.cpio",
                                              kernel->initramfs.substr(directory().size() + 1)));
}

TEST_F(GuestKernelTest, UsingAnArchiveKeepsIt) {
  const auto kernel = guest_kernel(data_dir_, data_dir_ + "/agent");
  ASSERT_TRUE(kernel);
  make_old(kernel->initramfs, 30);
  ASSERT_EQ(::symlink(data_dir_.c_str(), (data_dir_ + "/again").c_str()),
            0);  // another daemon's view
  const auto again = guest_kernel(data_dir_ + "/again", data_dir_ + "/agent");
  ASSERT_TRUE(again);
  struct stat st{};
  ASSERT_EQ(::stat(kernel->initramfs.c_str(), &st), 0);
  EXPECT_GT(st.st_mtim.tv_sec, ::time(nullptr) - 60);
}

}  // namespace
}  // namespace glovebox::runtime::microvm
