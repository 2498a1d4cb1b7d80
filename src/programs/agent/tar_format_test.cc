// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/tar_format.h"

#include <gtest/gtest.h>

namespace glovebox::agent {
namespace {

// Reads what tar_header() wrote.
TarEntry parse(std::string bytes) {
  TarReader reader;
  TarEntry entry;
  while (bytes.size() >= kTarBlock) {
    size_t content = 0;
    const auto kind = reader.take_header(bytes.substr(0, kTarBlock), &entry, &content).value();
    bytes.erase(0, kTarBlock);
    if (kind == TarReader::Kind::kEntry) return entry;
    EXPECT_TRUE(reader.take_content(bytes.substr(0, content)).has_value());
    bytes.erase(0, content + tar_padding(content));
  }
  ADD_FAILURE() << "no entry";
  return entry;
}

TEST(TarFormat, CarriesWhatDoesNotFitTheOldHeader) {
  TarEntry entry;
  for (const size_t length : {1, 99, 100, 101, 255, 991, 992, 4000}) {
    entry.path = std::string(length, 'p');
    entry.target = std::string(length, 't');
    entry.type = '2';
    const TarEntry got = parse(tar_header(entry));
    EXPECT_EQ(got.path, entry.path);
    EXPECT_EQ(got.target, entry.target);
  }
  entry = {};
  entry.path = "\xff\xfe" + std::string(200, 'x');
  entry.size = 1ull << 40;
  entry.uid = entry.gid = 4000000000u;
  entry.mtime = -5;
  const TarEntry got = parse(tar_header(entry));
  EXPECT_EQ(got.path, entry.path);
  EXPECT_EQ(got.size, entry.size);
  EXPECT_EQ(got.uid, entry.uid);
  EXPECT_EQ(got.gid, entry.gid);
  EXPECT_EQ(got.mtime, entry.mtime);
}

TEST(TarFormat, ReadsGnuNumbers) {
  TarEntry entry;
  entry.path = "f";
  std::string block = tar_header(entry);
  block.replace(124, 12, std::string("\x80\0\0\0\0\0\0\x01\0\0\0\0", 12));
  unsigned sum = 0;
  block.replace(148, 8, 8, ' ');
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[8];
  std::snprintf(text, sizeof text, "%06o", sum);
  block.replace(148, 7, std::string(text, 7));
  EXPECT_EQ(parse(block).size, 1ull << 32);
}

TEST(TarFormat, RefusesWhatIsNotAnArchive) {
  TarReader reader;
  TarEntry entry;
  size_t content = 0;
  EXPECT_EQ(reader.take_header(std::string(kTarBlock, 'x'), &entry, &content).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(reader.take_header(std::string(kTarBlock, '\0'), &entry, &content).value(),
            TarReader::Kind::kEnd);
  for (const char* record : {"99 path=x\n", "path=x\n", "0 a=b\n", "6 ab\n", "-5 a=b\n"}) {
    TarEntry extra;
    extra.type = 'x';
    extra.path = "p";
    extra.size = std::string(record).size();
    TarReader pax;
    ASSERT_EQ(pax.take_header(tar_header(extra), &entry, &content).value(),
              TarReader::Kind::kNeedsContent);
    EXPECT_EQ(pax.take_content(record).error().code, Code::kInvalidArgument) << record;
  }
}

}  // namespace
}  // namespace glovebox::agent
