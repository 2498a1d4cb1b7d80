// SPDX-License-Identifier: Apache-2.0
#include "sandbox/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/test_loop.h"
#include "base/text.h"
#include "sandbox/diff_record.h"

namespace glovebox::sandbox::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A tree in memory: path → entry. Pages of two entries.
class FakeTree : public Tree {
 public:
  void file(const std::string& path, int64_t ctime = 1, std::string type = "file") {
    FileEntry entry;
    entry.name = path.substr(path.rfind('/') + 1);
    entry.type = std::move(type);
    entry.size = 7;
    entry.mode = 0644;
    entry.ctime_ns = ctime;
    entries[path] = entry;
  }
  void directory(const std::string& path, int64_t ctime = 1) { file(path, ctime, "directory"); }

  Async<Listing> list(const std::string& directory, const std::string& after) override {
    ++listings[directory];
    std::map<std::string, FileEntry> found;
    const std::string below = directory == "/" ? "/" : directory + "/";
    for (const auto& [path, entry] : entries) {
      const bool is_child = path.starts_with(below) && path.find('/', below.size()) == path.npos;
      if (is_child && entry.name > after) found[entry.name] = entry;
    }
    Listing out;
    for (const auto& [name, entry] : found) {
      if (out.entries.size() == 2) out.more = true;
      else out.entries.push_back(entry);
    }
    co_return out;
  }
  Async<std::optional<FileEntry>> find(const std::string& path) override {
    const auto found = entries.find(path);
    if (found == entries.end()) co_return std::optional<FileEntry>();
    co_return std::optional<FileEntry>(found->second);
  }

  std::map<std::string, FileEntry> entries;
  std::map<std::string, int> listings;
};

std::string text(const FileChange& change) {
  constexpr const char* kMarks[] = {"+ ", "~ ", "- "};
  return kMarks[static_cast<int>(change.kind)] + change.path;
}

Page<FileChange> page_of(Tree& before, Tree& now, const Options& options) {
  auto page = TestLoop().run(compare(before, now, options));
  EXPECT_TRUE(page) << page.error().message;
  return page ? std::move(*page) : Page<FileChange>();
}

// All pages, one after the other.
std::vector<std::string> all(Tree& before, Tree& now, Options options = {}, int* pages = nullptr) {
  std::vector<std::string> out;
  do {
    const auto page = page_of(before, now, options);
    for (const auto& change : page.items) out.push_back(text(change));
    options.cursor = page.next_cursor;
    if (pages != nullptr) ++*pages;
  } while (!options.cursor.empty());
  return out;
}

class Diff : public testing::Test {
 protected:
  Diff() {
    for (FakeTree* tree : {&before, &now}) {
      for (const char* path : {"/bin", "/etc", "/etc/ssl", "/usr", "/usr/lib", "/usr/lib/x"}) tree->directory(path);
      for (const char* path : {"/bin/ls", "/etc/passwd", "/etc/ssl/a", "/etc/ssl/b", "/etc/ssl/c", "/usr/lib/x/1"}) tree->file(path);
    }
  }
  void touch(const std::string& path) { now.entries[path].ctime_ns = 2; }
  FakeTree before, now;
};

TEST_F(Diff, EqualTreesHaveNoneAndAreNotSearched) {
  EXPECT_THAT(all(before, now), IsEmpty());
  EXPECT_THAT(now.listings, ElementsAre(std::pair("/", 2)));
}

TEST_F(Diff, FindsWhatWasAddedChangedAndDeleted) {
  touch("/etc");
  touch("/etc/passwd");
  now.file("/etc/new", 2);
  touch("/etc/ssl");
  now.entries.erase("/etc/ssl/b");
  now.directory("/opt", 2);
  now.file("/opt/tool", 2);
  EXPECT_THAT(all(before, now), ElementsAre("+ /etc/new", "~ /etc/passwd", "- /etc/ssl/b", "+ /opt", "+ /opt/tool"));
  EXPECT_FALSE(now.listings.contains("/usr"));
}

TEST_F(Diff, ADirectoryThatIsGoneIsOneItemAndOneThatBecameAFileIsChanged) {
  touch("/etc");
  now.entries.erase("/etc/ssl");
  for (const char* name : {"a", "b", "c"}) now.entries.erase(std::string("/etc/ssl/") + name);
  now.entries.erase("/usr/lib/x/1");
  now.entries.erase("/usr/lib/x");
  now.file("/usr/lib/x", 2);
  touch("/usr");
  touch("/usr/lib");
  EXPECT_THAT(all(before, now), ElementsAre("- /etc/ssl", "~ /usr/lib/x"));
}

TEST_F(Diff, AFileThatBecameADirectoryIsChangedAndHoldsWhatIsNew) {
  touch("/bin");
  now.directory("/bin/ls", 2);
  now.file("/bin/ls/inside", 2);
  EXPECT_THAT(all(before, now), ElementsAre("~ /bin/ls", "+ /bin/ls/inside"));
}

TEST_F(Diff, DirectoriesCountByTheirOwnOwnerAndMode) {
  touch("/etc");
  now.entries["/etc"].mode = 0700;
  touch("/usr");
  EXPECT_THAT(all(before, now), ElementsAre("~ /etc"));
}

TEST_F(Diff, WhatIsLeftOutIsNotEntered) {
  now.directory("/proc", 9);
  now.file("/proc/1", 9);
  touch("/etc");
  touch("/etc/passwd");
  EXPECT_THAT(all(before, now, {.left_out = {"/proc", "/etc/passwd"}}), IsEmpty());
  EXPECT_FALSE(now.listings.contains("/proc"));
}

TEST_F(Diff, ADirectoryOfSomebodyElseCountsByWhatIsInIt) {
  now.directory("/work", 2);
  now.file("/work/new", 2);
  touch("/etc");
  now.entries["/etc"].uid = 1000;
  EXPECT_THAT(all(before, now, {.not_itself = {"/etc", "/work"}}), ElementsAre("+ /work/new"));
}

TEST_F(Diff, ATreeWithItsChangesMadeIsTheOtherTree) {
  touch("/etc");
  touch("/etc/passwd");
  touch("/etc/ssl");
  for (const char* path : {"/etc/ssl/a", "/etc/ssl/b", "/usr/lib/x", "/usr/lib/x/1"}) now.entries.erase(path);
  touch("/usr");
  touch("/usr/lib");
  now.file("/usr/lib/x", 2);
  now.directory("/opt", 2);
  now.file("/opt/\xff name", 2);
  const auto changes = decode(encode(page_of(before, now, {}).items));
  ASSERT_TRUE(changes);
  const auto then = changed_tree(before, *changes);
  EXPECT_THAT(all(*then, now), IsEmpty());
  now.file("/etc/ssl/a", 3);
  now.entries["/etc/passwd"].ctime_ns = 3;
  now.entries.erase("/opt/\xff name");
  now.entries["/opt"].ctime_ns = 3;
  for (size_t limit = 1; limit < 4; ++limit) {
    EXPECT_THAT(all(*then, now, {.limit = limit}), ElementsAre("~ /etc/passwd", "+ /etc/ssl/a", "- /opt/\xff name")) << limit;
  }
}

TEST(DiffRecord, DamagedOnesAreRefused) {
  const std::string good = encode({{"/a", FileChange::Kind::kChanged, "file", 7, 0644, 1, 2, 3}});
  ASSERT_TRUE(decode(good));
  EXPECT_EQ(decode(good)->at(0).ctime_ns, 3);
  for (size_t cut = 1; cut + 3 < good.size(); ++cut) {
    const auto damaged = decode(good.substr(0, cut));
    EXPECT_TRUE(!damaged && damaged.error().code == Code::kCorrupt) << cut;
  }
  EXPECT_FALSE(decode("X file 1 1 1 1 1 L2E=\n"));
  EXPECT_FALSE(decode("A file 1 1 1 1 1 YQ==\n"));
}

TEST_F(Diff, PagesOfAnySizeAreTheSameWhole) {
  touch("/etc");
  touch("/etc/ssl");
  touch("/etc/ssl/c");
  for (const char* path : {"/a", "/a/b", "/a/b/c", "/a-b", "/etc/ssl/a0", "/z"}) now.directory(path, 2);
  now.file("/a/b/c/d", 2);
  now.entries.erase("/etc/ssl/b");
  const auto whole = all(before, now);
  EXPECT_THAT(whole, ElementsAre("+ /a", "+ /a/b", "+ /a/b/c", "+ /a/b/c/d", "+ /a-b", "+ /etc/ssl/a0", "- /etc/ssl/b", "~ /etc/ssl/c", "+ /z"));
  for (size_t limit = 1; limit < 10; ++limit) EXPECT_EQ(all(before, now, {.limit = limit}), whole) << limit;
  int pages = 0;
  EXPECT_EQ(all(before, now, {.most_listings = 1}, &pages), whole);
  EXPECT_GT(pages, 5);
}

TEST_F(Diff, GoesOnWhenWhatTheCursorNamesIsGone) {
  now.directory("/a", 2);
  now.file("/a/1", 2);
  now.file("/a/2", 2);
  Options options{.limit = 2};
  options.cursor = page_of(before, now, options).next_cursor;
  for (const char* path : {"/a", "/a/1", "/a/2"}) now.entries.erase(path);
  now.file("/b", 2);
  EXPECT_EQ(text(page_of(before, now, options).items.at(0)), "+ /b");
}

TEST_F(Diff, CursorsThatAreNotOursAreRefused) {
  const std::string nul("/a\0b", 4);
  std::vector<std::string> cursors = {"%"};
  for (const std::string& path : {std::string("etc"), std::string("/etc/../x"), std::string("//"), std::string("/a/./b"), nul,
                                  "/" + std::string(5000, 'x')}) {
    cursors.push_back(base64_encode(path));
  }
  for (const std::string& cursor : cursors) {
    const Options options{.cursor = cursor};
    const auto page = TestLoop().run(compare(before, now, options));
    EXPECT_TRUE(!page && page.error().code == Code::kInvalidArgument) << cursor;
  }
}

}  // namespace
}  // namespace glovebox::sandbox::diff
