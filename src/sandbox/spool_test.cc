// SPDX-License-Identifier: Apache-2.0
#include "sandbox/spool.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/random.h"

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

}  // namespace
}  // namespace glovebox::sandbox
