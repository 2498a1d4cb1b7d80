// SPDX-License-Identifier: Apache-2.0
#include "registry/cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/files.h"

namespace glovebox::registry {
namespace {

class CacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/registry-cache-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { (void)sys::remove_tree(directory_); }
  std::unique_ptr<Cache> open(uint64_t limit = 1 << 20) {
    auto cache = Cache::open(directory_, limit);
    EXPECT_TRUE(cache);
    return std::move(*cache);
  }
  static Result<std::string> put(Cache& cache, std::string_view content, Integrity expected = {}) {
    GB_TRY(const auto writer, cache.begin(std::move(expected)));
    GB_TRYV(writer->write(content));
    return writer->commit();
  }
  static std::string content(const Cache::File& file) { return *sys::read_fd(::dup(file.fd.get())); }
  std::string directory_;
};

TEST_F(CacheTest, KeepsAFileThatMatchesEachKindOfHash) {
  const auto cache = open();
  // printf abc | sha1sum, sha256sum, sha512sum
  const std::string sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  EXPECT_EQ(*put(*cache, "abc", sha256_integrity(sha256)), sha256);
  EXPECT_EQ(*put(*cache, "abc", npm_integrity("", "a9993e364706816aba3e25717850c26c9cd0d89d")), sha256);
  EXPECT_EQ(*put(*cache, "abc",
                 npm_integrity("sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0= sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==", "")),
            sha256);
  const auto file = cache->find(sha256);
  ASSERT_TRUE(file);
  EXPECT_EQ(content(*file), "abc");
  EXPECT_EQ(cache->used(), 3u);
}

TEST_F(CacheTest, NeverShowsAFileThatDoesNotMatch) {
  const auto cache = open();
  for (const Integrity& expected : {sha256_integrity(std::string(64, '0')), npm_integrity("", std::string(40, '0'))}) {
    const auto sha256 = put(*cache, "abc", expected);
    ASSERT_FALSE(sha256);
    EXPECT_EQ(sha256.error().code, Code::kCorrupt);
  }
  EXPECT_EQ(cache->used(), 0u);
  EXPECT_TRUE(sys::list_directory(directory_ + "/files").empty());
  EXPECT_TRUE(sys::list_directory(directory_ + "/partial").empty());
}

TEST_F(CacheTest, AByteThatChangedOnDiskIsAMissAfterARestart) {
  const std::string sha256 = *put(*open(), "abc");
  const std::string path = directory_ + "/files/" + sha256;
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_TRUE(sys::put_file(path, "abd", 0600));
  const auto cache = open();
  EXPECT_TRUE(cache->contains(sha256));
  EXPECT_FALSE(cache->find(sha256));
  EXPECT_FALSE(sys::exists(path));
  EXPECT_EQ(cache->used(), 0u);
}

TEST_F(CacheTest, EvictsWhatWasUsedLongestAgo) {
  const auto cache = open(30'000);
  const std::string a = *put(*cache, std::string(10'000, 'a')), b = *put(*cache, std::string(10'000, 'b')), c = *put(*cache, std::string(10'000, 'c'));
  ASSERT_TRUE(cache->find(a));
  const auto reader = cache->find(b);
  put(*cache, std::string(10'000, 'd')).value();
  EXPECT_TRUE(cache->contains(a) && cache->contains(b) && !cache->contains(c));
  put(*cache, std::string(20'000, 'e')).value();
  EXPECT_FALSE(cache->contains(a) || cache->contains(b));
  EXPECT_LE(cache->used(), 30'000u);
  EXPECT_EQ(content(*reader).size(), 10'000u) << "a reader keeps what it reads";
}

TEST_F(CacheTest, CountsWhatIsStillBeingWritten) {
  const auto cache = open(1000);
  const auto writer = std::move(*cache->begin({}));
  ASSERT_TRUE(writer->write(std::string(900, 'x')));
  const auto more = writer->write(std::string(200, 'x'));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kDiskFull);
  EXPECT_EQ(cache->used(), 900u);
}

TEST_F(CacheTest, StartsWithoutTheHalfWrittenAndWithTheRest) {
  std::string sha256;
  {
    const auto cache = open();
    sha256 = *put(*cache, "abc");
    ASSERT_TRUE(cache->write_record("key", "value"));
    ASSERT_TRUE(sys::put_file(directory_ + "/partial/7", "half", 0600));
  }
  const auto cache = open();
  EXPECT_TRUE(sys::list_directory(directory_ + "/partial").empty());
  EXPECT_TRUE(cache->find(sha256));
  EXPECT_EQ(cache->read_record("key"), "value");
  EXPECT_FALSE(cache->read_record("other"));
  cache->set_limit(0);
  EXPECT_EQ(cache->used(), 0u);
  EXPECT_FALSE(cache->find(sha256));
}

TEST_F(CacheTest, ADamagedRecordIsAbsent) {
  const auto cache = open();
  ASSERT_TRUE(cache->write_record("key", "value"));
  ASSERT_TRUE(sys::put_file(directory_ + "/records/" + sha256_hex("key"), std::string(64, '0') + "\nother", 0600));
  EXPECT_FALSE(cache->read_record("key"));
  EXPECT_FALSE(cache->has_record("key"));
  ASSERT_TRUE(cache->write_record("key", ""));
  EXPECT_EQ(cache->used(), 65u);
}

}  // namespace
}  // namespace glovebox::registry
