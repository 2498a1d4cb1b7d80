// SPDX-License-Identifier: Apache-2.0
#include "sandbox/spool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "channel/testing/peer.h"

namespace glovebox::sandbox {
namespace {

std::string joined(const std::vector<Chunk>& chunks) {
  std::string out;
  for (const Chunk& c : chunks) out += (c.stream == Stream::kStdout ? "o" : "e") + std::to_string(c.cursor) + ":" + c.data + " ";
  return out;
}

class SpoolTest : public testing::Test {
 protected:
  ~SpoolTest() override { std::filesystem::remove(path_ + ".out"), std::filesystem::remove(path_ + ".idx"); }
  void write_out(Spool& spool) {
    auto batch = spool.take_batch();
    ASSERT_TRUE(spool.write(batch));
    spool.batch_written(batch);
  }
  std::string path_ = "/tmp/gb-spool-" + random_name(8);
};

TEST_F(SpoolTest, KeepsOrderAndStreamsInMemory) {
  Spool spool(path_);
  spool.append(Stream::kStdout, "ab");
  spool.append(Stream::kStdout, "c");
  spool.append(Stream::kStderr, "de");
  spool.append(Stream::kStdout, "f");
  EXPECT_EQ(joined(spool.read_memory(0, 100)), "o0:abc e3:de o5:f ");
  EXPECT_EQ(joined(spool.read_memory(2, 2)), "o2:c e3:d ");
  EXPECT_EQ(joined(spool.read_memory(6, 100)), "");
  EXPECT_EQ(spool.stream_end(Stream::kStdout), 4u);
  EXPECT_EQ(spool.end(), 6u);
}

TEST_F(SpoolTest, SurvivesInABlob) {
  Spool spool(path_), copy(path_);
  spool.append(Stream::kStderr, std::string("\0x", 2));
  spool.append(Stream::kStdout, "y");
  ASSERT_TRUE(copy.from_blob(spool.to_blob()));
  EXPECT_EQ(joined(copy.read_memory(0, 9)), joined(spool.read_memory(0, 9)));
  EXPECT_FALSE(copy.from_blob("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"));
}

TEST_F(SpoolTest, MovesToAFileAndIsFoundAgain) {
  {
    Spool spool(path_);
    spool.append(Stream::kStdout, "abc");
    write_out(spool);
    spool.append(Stream::kStdout, "d");
    auto batch = spool.take_batch();
    spool.append(Stream::kStderr, "e");  // while the batch is being written
    ASSERT_TRUE(spool.write(batch));
    spool.batch_written(batch);
    EXPECT_EQ(spool.end(), 5u);
    EXPECT_EQ(joined(spool.read_memory(4, 9)), "e4:e ");
    write_out(spool);
  }
  Spool later(path_);
  ASSERT_TRUE(later.open_existing().value());
  EXPECT_EQ(later.end(), 5u);
  EXPECT_EQ(later.stream_end(Stream::kStdout), 4u);
  EXPECT_EQ(later.stream_end(Stream::kStderr), 1u);
  ASSERT_FALSE(later.in_memory(1));
  const auto plan = later.plan_file_read(1, 100);
  EXPECT_EQ(joined(later.cut(1, Spool::read_file(path_, plan).value())), "o1:bcd e4:e ");
}

TEST_F(SpoolTest, MissingFileIsNotAnError) {
  Spool spool(path_);
  EXPECT_FALSE(spool.open_existing().value());
}

TEST_F(SpoolTest, ABlobThatIsNotOneIsCorrupt) {
  const auto u64 = [](uint64_t v) { return channel::testing::u64(v); };
  for (const std::string& blob : {std::string("short"), u64(0) + "bytes without an index", u64(1) + u64(3) + u64(1) + "does not begin at 0",
                                  u64(2) + u64(0) + u64(1) + u64(0) + u64(2) + "twice", u64(1ull << 61) + std::string(64, 'x')}) {
    Spool spool(path_);
    const auto read = spool.from_blob(blob);
    EXPECT_EQ(read ? Code::kInternal : read.error().code, Code::kCorrupt) << blob;
  }
}

// The daemon may die between any two writes. Whatever is there then, the next one knows how far each stream is.
TEST_F(SpoolTest, KnowsTheStreamsWhereverTheDaemonDied) {
  const std::string all = "ooeeo";
  std::string index;
  for (const auto& [offset, stream] : {std::pair<uint64_t, uint64_t>{0, 1}, {2, 2}, {4, 1}}) {
    index += channel::testing::u64(offset) + channel::testing::u64(stream);
  }
  for (size_t bytes = 0; bytes <= all.size(); ++bytes) {
    std::ofstream(path_ + ".idx", std::ios::trunc) << index;  // goes first
    std::ofstream(path_ + ".out", std::ios::trunc) << all.substr(0, bytes);
    Spool spool(path_);
    ASSERT_TRUE(spool.open_existing().value());
    const std::string kept = all.substr(0, bytes);
    EXPECT_EQ(spool.end(), bytes);
    EXPECT_EQ(spool.stream_end(Stream::kStdout), static_cast<uint64_t>(std::count(kept.begin(), kept.end(), 'o')));
    EXPECT_EQ(spool.stream_end(Stream::kStderr), static_cast<uint64_t>(std::count(kept.begin(), kept.end(), 'e')));
    spool.append(Stream::kStderr, "E");
    write_out(spool);
    Spool again(path_);
    ASSERT_TRUE(again.open_existing().value());
    const auto chunks = again.cut(0, Spool::read_file(path_, again.plan_file_read(0, 100)).value());
    EXPECT_EQ(chunks.back().stream, Stream::kStderr);
    EXPECT_EQ(again.stream_end(Stream::kStderr), spool.stream_end(Stream::kStderr));
  }
}

TEST_F(SpoolTest, AnIndexThatDoesNotFitIsCorruptAndNotFatal) {
  for (const std::string& index : {std::string(), channel::testing::u64(2) + channel::testing::u64(1), std::string(15, 'x')}) {
    std::ofstream(path_ + ".idx", std::ios::trunc) << index;
    std::ofstream(path_ + ".out", std::ios::trunc) << "bytes";
    Spool spool(path_);
    const auto opened = spool.open_existing();
    EXPECT_EQ(opened ? Code::kInternal : opened.error().code, Code::kCorrupt);
    EXPECT_EQ(spool.end(), 0u);
  }
}

}  // namespace
}  // namespace glovebox::sandbox
