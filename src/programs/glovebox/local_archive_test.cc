// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/local_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/unique_fd.h"

namespace glovebox::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

struct Member {
  std::string name, content, symlink, hardlink;
  mode_t type = AE_IFREG;
  mode_t perm = 0644;
};

// A tar in memory, ready to be read.
UniqueFd tar_of(const std::vector<Member>& members) {
  UniqueFd fd(::memfd_create("tar", MFD_CLOEXEC));
  archive* out = ::archive_write_new();
  ::archive_write_set_format_pax(out);
  ::archive_write_set_options(out, "hdrcharset=BINARY");
  ::archive_write_open_fd(out, fd.get());
  for (const Member& member : members) {
    archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, member.name.c_str());
    ::archive_entry_set_filetype(entry, member.type);
    ::archive_entry_set_perm(entry, member.perm);
    ::archive_entry_set_size(entry, static_cast<la_int64_t>(member.content.size()));
    if (!member.symlink.empty()) ::archive_entry_set_symlink(entry, member.symlink.c_str());
    if (!member.hardlink.empty()) ::archive_entry_set_hardlink(entry, member.hardlink.c_str());
    EXPECT_EQ(::archive_write_header(out, entry), ARCHIVE_OK) << ::archive_error_string(out);
    ::archive_write_data(out, member.content.data(), member.content.size());
    ::archive_entry_free(entry);
  }
  ::archive_write_free(out);
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

class LocalArchive : public testing::Test {
 protected:
  LocalArchive()
      : top_(fs::temp_directory_path() / ("glovebox-archive-" + std::to_string(::getpid()))) {
    fs::remove_all(top_);
    fs::create_directories(target());
    std::ofstream(top_ / "outside") << "untouched";
  }
  ~LocalArchive() override { fs::remove_all(top_); }
  fs::path target() const { return top_ / "target"; }
  std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // On a thread of its own, as the program does: the call changes the thread's working directory.
  Result<std::vector<std::string>> unpack(const std::vector<Member>& members) {
    const UniqueFd tar = tar_of(members);
    return unpack(tar.get());
  }
  Result<std::vector<std::string>> unpack(int fd) {
    Result<std::vector<std::string>> result;
    std::thread([&] { result = unpack_into(target().string(), fd); }).join();
    return result;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(target()))
      out.push_back(entry.path().lexically_relative(target()).string());
    std::sort(out.begin(), out.end());
    return out;
  }
  const fs::path top_;
};

TEST_F(LocalArchive, RoundTripKeepsContentsModesLinksAndOddNames) {
  const fs::path source = top_ / "source";
  fs::create_directories(source / "deep/er/empty");
  const std::string binary("\0\xff\x80zero", 7);
  std::ofstream(source / "deep/binary", std::ios::binary) << binary;
  std::ofstream(source / "größe") << "utf-8";
  std::ofstream(source / "bad\xff\xfename") << "no utf-8";
  std::ofstream(source / std::string(200, 'n')) << "long";
  std::ofstream(source / "-rf *\n") << "shell";
  fs::create_symlink("../größe", source / "deep/link");
  ASSERT_EQ(::chmod((source / "deep/binary").c_str(), 0751), 0);
  const UniqueFd tar(::memfd_create("tar", MFD_CLOEXEC));
  const auto packed = pack_directory(source.string() + "/", tar.get());
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_THAT(*packed, ElementsAre());
  ::lseek(tar.get(), 0, SEEK_SET);
  const auto unpacked = unpack(tar.get());
  ASSERT_TRUE(unpacked) << unpacked.error().message;
  EXPECT_THAT(*unpacked, ElementsAre());
  EXPECT_EQ(read(target() / "deep/binary"), binary);
  EXPECT_EQ(read(target() / "größe"), "utf-8");
  EXPECT_EQ(read(target() / "bad\xff\xfename"), "no utf-8");
  EXPECT_EQ(read(target() / std::string(200, 'n')), "long");
  EXPECT_EQ(read(target() / "-rf *\n"), "shell");
  EXPECT_EQ(fs::read_symlink(target() / "deep/link"), "../größe");
  EXPECT_TRUE(fs::is_directory(target() / "deep/er/empty"));
  struct stat info{};
  ASSERT_EQ(::stat((target() / "deep/binary").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0751u);
}

TEST_F(LocalArchive, PackingLeavesOutWhatCannotTravelAndSaysSo) {
  const fs::path source = top_ / "source";
  fs::create_directories(source);
  ASSERT_EQ(::mkfifo((source / "pipe").c_str(), 0600), 0);
  std::ofstream(source / "file") << "x";
  const UniqueFd tar(::memfd_create("tar", MFD_CLOEXEC));
  const auto packed = pack_directory(source.string(), tar.get());
  ASSERT_TRUE(packed);
  EXPECT_THAT(*packed, ElementsAre(HasSubstr("pipe")));
  ::lseek(tar.get(), 0, SEEK_SET);
  ASSERT_TRUE(unpack(tar.get()));
  EXPECT_THAT(names(), ElementsAre("file"));
}

TEST_F(LocalArchive, RefusesNamesThatPointOutside) {
  for (const char* name :
       {"../outside", "a/../../outside", "/tmp/glovebox-outside", "..", "a/.."}) {
    const auto result = unpack({{name, "overwritten"}});
    ASSERT_FALSE(result) << name;
    EXPECT_EQ(result.error().code, Code::kInvalidPath) << name;
  }
  EXPECT_EQ(read(top_ / "outside"), "untouched");
  EXPECT_FALSE(fs::exists("/tmp/glovebox-outside"));
}

TEST_F(LocalArchive, LeavesOutLinksThatPointOutside) {
  const auto result = unpack({{.name = "up", .symlink = "..", .type = AE_IFLNK},
                              {.name = "etc", .symlink = "/etc", .type = AE_IFLNK},
                              {.name = "d/deep", .symlink = "../../outside", .type = AE_IFLNK},
                              {.name = "hard", .hardlink = "../outside"},
                              {.name = "hard2", .hardlink = "/etc/passwd"},
                              {.name = "inside", .symlink = "d/x", .type = AE_IFLNK},
                              {.name = "d/fine", .symlink = "../inside", .type = AE_IFLNK}});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->size(), 5u);
  EXPECT_THAT(names(), ElementsAre("d", "d/fine", "inside"));
}

TEST_F(LocalArchive, RefusesToWriteThroughADirectoryThatIsALink) {
  fs::create_directory_symlink(top_, target() / "there-before");
  const auto result = unpack({{"there-before/outside", "overwritten"}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kInvalidPath);
  EXPECT_EQ(read(top_ / "outside"), "untouched");
}

TEST_F(LocalArchive, ALinkInAFilesPlaceIsReplacedNotFollowed) {
  fs::create_symlink(top_ / "outside", target() / "file");
  const auto result = unpack({{"file", "new"}});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(read(top_ / "outside"), "untouched");
  EXPECT_EQ(read(target() / "file"), "new");
  EXPECT_FALSE(fs::is_symlink(target() / "file"));
}

TEST_F(LocalArchive, LeavesOutDevicesAndPipesAndTakesNoSetIdBits) {
  const auto result = unpack({{.name = "null", .type = AE_IFCHR, .perm = 0666},
                              {.name = "pipe", .type = AE_IFIFO},
                              {.name = "suid", .content = "x", .perm = 06755}});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->size(), 2u);
  EXPECT_THAT(names(), ElementsAre("suid"));
  struct stat info{};
  ASSERT_EQ(::stat((target() / "suid").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07000, 0u);
}

TEST_F(LocalArchive, ATarThatBreaksOffIsAnError) {
  const UniqueFd tar = tar_of({{"file", std::string(100'000, 'x')}});
  ASSERT_EQ(::ftruncate(tar.get(), 50'000), 0);
  const auto result = unpack(tar.get());
  ASSERT_FALSE(result);
}

TEST_F(LocalArchive, GarbageIsAnError) {
  const UniqueFd tar(::memfd_create("garbage", MFD_CLOEXEC));
  const std::string garbage(10'000, '\x55');
  ASSERT_EQ(::write(tar.get(), garbage.data(), garbage.size()), 10'000);
  ::lseek(tar.get(), 0, SEEK_SET);
  EXPECT_FALSE(unpack(tar.get()));
}

TEST(LinkTargets, AreReadAsText) {
  for (const auto& [name, target] : {std::pair("a", "b"), std::pair("d/a", "../b"),
                                     std::pair("d/a", "./x/../../b"), std::pair("./d/a", "../b")}) {
    EXPECT_TRUE(link_stays_inside(name, target)) << name << " -> " << target;
  }
  for (const auto& [name, target] :
       {std::pair("a", ".."), std::pair("a", "/b"), std::pair("d/a", "../../b"),
        std::pair("./a", "../b"), std::pair("a", "")}) {
    EXPECT_FALSE(link_stays_inside(name, target)) << name << " -> " << target;
  }
}

}  // namespace
}  // namespace glovebox::cli
