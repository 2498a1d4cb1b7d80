// SPDX-License-Identifier: Apache-2.0
#include "sandbox/gzip.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/random.h"
#include "base/test_loop.h"

namespace glovebox::sandbox {
namespace {

class Pieces : public ByteSource {
 public:
  explicit Pieces(std::deque<std::string> pieces) : pieces_(std::move(pieces)) {}
  Async<std::string> read() override {
    if (pieces_.empty()) co_return std::string();
    std::string piece = std::move(pieces_.front());
    pieces_.pop_front();
    co_return piece;
  }

 private:
  std::deque<std::string> pieces_;
};

class Collector : public ByteSink {
 public:
  explicit Collector(std::string* out) : out_(out) {}
  Async<void> write(std::string data) override {
    EXPECT_LE(data.size(), 256u * 1024);
    *out_ += data;
    co_return Result<void>();
  }
  Async<std::optional<FileEntry>> finish() override { co_return std::optional<FileEntry>(); }

 private:
  std::string* out_;
};

class GzipTest : public testing::Test {
 protected:
  template <class T>
  Result<T> run(Async<T> work) {
    return loop_.run(std::move(work));
  }
  std::string compress(const std::string& bytes) {
    auto source = gzip_source(pool_, std::make_unique<Pieces>(std::deque<std::string>{bytes}));
    std::string out;
    while (true) {
      const std::string piece = run(source->read()).value();
      if (piece.empty()) return out;
      out += piece;
    }
  }
  Result<std::string> decompress(const std::string& bytes, size_t step) {
    std::string out;
    auto sink = gunzip_sink(pool_, std::make_unique<Collector>(&out));
    for (size_t at = 0; at < bytes.size(); at += step) GB_TRYV(run(sink->write(bytes.substr(at, step))));
    GB_TRYV(run(sink->finish()));
    return out;
  }
  TestLoop loop_;
  BlockingPool pool_{1};
};

TEST_F(GzipTest, RoundTripsInAnySteps) {
  const std::string noise = random_bytes(700'000) + std::string(3'000'000, 'z');
  const std::string packed = compress(noise);
  EXPECT_TRUE(packed.starts_with("\x1f\x8b"));
  for (const size_t step : {size_t{997}, size_t{100'000}, packed.size()}) EXPECT_EQ(decompress(packed, step).value(), noise) << step;
  EXPECT_EQ(decompress(compress(""), 1).value(), "");
}

TEST_F(GzipTest, PassesPlainBytesAndSeveralMembers) {
  for (const std::string plain : {"", "a", "ab", "plain text"}) EXPECT_EQ(decompress(plain, 1).value(), plain);
  EXPECT_EQ(decompress(compress("one") + compress("two") + std::string(512, '\0'), 7).value(), "onetwo");
}

TEST_F(GzipTest, RefusesBrokenAndCutData) {
  const std::string packed = compress(hex(random_bytes(50'000)));  // no repetition that could hide a change
  EXPECT_EQ(decompress(packed.substr(0, packed.size() - 9), 64).error().code, Code::kInvalidArgument);
  std::string broken = packed;
  broken[broken.size() / 2] ^= 0x55;
  const auto mended = decompress(broken, 64);
  ASSERT_FALSE(mended.has_value());
  EXPECT_EQ(mended.error().code, Code::kInvalidArgument);
  EXPECT_EQ(decompress("\x1f\x8b", 1).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace glovebox::sandbox
