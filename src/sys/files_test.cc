// SPDX-License-Identifier: Apache-2.0
#include "sys/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace glovebox::sys {
namespace {

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/glovebox-files-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(dir_)); }
  std::string dir_;
};

TEST_F(FilesTest, SparseCopyKeepsHolesSizeAndBytes) {
  std::string from = dir_ + "/from", to = dir_ + "/to";
  {
    auto fd = open_fd(from, O_RDWR | O_CREAT, 0600).value();
    ASSERT_EQ(::ftruncate(fd.get(), 64 << 20), 0);
    ASSERT_EQ(::pwrite(fd.get(), "begin", 5, 0), 5);
    ASSERT_EQ(::pwrite(fd.get(), "middle", 6, (32 << 20) + 7), 6);
  }
  ASSERT_TRUE(copy_sparse(from, to));
  struct stat st{};
  ASSERT_EQ(::stat(to.c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 64 << 20);
  EXPECT_LT(st.st_blocks * 512, 1 << 20);
  EXPECT_TRUE(read_file(from, 64 << 20).value() == read_file(to, 64 << 20).value());
}

TEST_F(FilesTest, SealedCopyIsExecutableAndCannotBeChanged) {
  auto copy = sealed_copy("/bin/true", "copy");
  ASSERT_TRUE(copy.has_value()) << copy.error().message;
  EXPECT_LT(::pwrite(copy->get(), "x", 1, 0), 0);
  EXPECT_LT(::ftruncate(copy->get(), 0), 0);
  EXPECT_LT(::fcntl(copy->get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, copy->get(), 0), MAP_FAILED);
}

TEST_F(FilesTest, RemoveTreeDoesNotFollowLinksAndCanKeepTheTop) {
  ASSERT_TRUE(make_directories(dir_ + "/outside/kept", 0700));
  ASSERT_TRUE(make_directories(dir_ + "/tree/a/b", 0700));
  ASSERT_EQ(::symlink((dir_ + "/outside").c_str(), (dir_ + "/tree/a/link").c_str()), 0);
  ASSERT_TRUE(remove_tree(dir_ + "/tree", true));
  EXPECT_TRUE(exists(dir_ + "/tree"));
  EXPECT_TRUE(list_directory(dir_ + "/tree").empty());
  EXPECT_TRUE(exists(dir_ + "/outside/kept"));
  EXPECT_TRUE(remove_tree(dir_ + "/tree"));
  EXPECT_TRUE(remove_tree(dir_ + "/tree"));  // not there: fine
}

TEST_F(FilesTest, ErrorsNameThePathAndTheReason) {
  auto missing = read_file(dir_ + "/none");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kFileNotFound);
  EXPECT_NE(missing.error().message.find(dir_ + "/none"), std::string::npos);
}

}  // namespace
}  // namespace glovebox::sys
