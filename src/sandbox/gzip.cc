// SPDX-License-Identifier: Apache-2.0
#include "sandbox/gzip.h"

#include <zlib.h>

#include <array>

namespace glovebox::sandbox {
namespace {

constexpr int kGzip = 16 + MAX_WBITS;
constexpr size_t kPiece = 256 * 1024;

class GzipSource : public ByteSource {
 public:
  GzipSource(BlockingPool& pool, std::unique_ptr<ByteSource> source) : pool_(pool), source_(std::move(source)) {
    GB_ASSERT(::deflateInit2(&z_, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    entry = source_->entry;
  }
  ~GzipSource() override { ::deflateEnd(&z_); }

  Async<std::string> read() override {
    std::string out;
    while (out.empty() && !finished_) {
      GB_CO_TRY(const std::string piece, co_await source_->read());
      finished_ = piece.empty();
      out = co_await run_blocking(pool_, [&] { return compress(piece); });
    }
    co_return out;
  }

 private:
  std::string compress(const std::string& piece) {
    std::string out;
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    z_.avail_in = static_cast<uInt>(piece.size());
    do {  // until it leaves room: then it has given all it has
      const size_t have = out.size();
      out.resize(have + kPiece);
      z_.next_out = reinterpret_cast<Bytef*>(out.data() + have);
      z_.avail_out = kPiece;
      const int rc = ::deflate(&z_, piece.empty() ? Z_FINISH : Z_NO_FLUSH);
      GB_ASSERT(rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR);
      out.resize(out.size() - z_.avail_out);
    } while (z_.avail_out == 0);
    return out;
  }

  BlockingPool& pool_;
  std::unique_ptr<ByteSource> source_;
  z_stream z_{};
  bool finished_ = false;
};

class GunzipSink : public ByteSink {
 public:
  GunzipSink(BlockingPool& pool, std::unique_ptr<ByteSink> sink) : pool_(pool), sink_(std::move(sink)) {
    GB_ASSERT(::inflateInit2(&z_, kGzip) == Z_OK);
  }
  ~GunzipSink() override { ::inflateEnd(&z_); }

  Async<void> write(std::string data) override {
    if (kind_ == Kind::kUnknown) {
      start_ += data;
      if (start_.size() < 2) co_return Result<void>();
      kind_ = start_.starts_with("\x1f\x8b") ? Kind::kGzip : Kind::kPlain;
      data = std::move(start_);
    }
    if (kind_ == Kind::kPlain) co_return co_await sink_->write(std::move(data));
    z_.next_in = reinterpret_cast<Bytef*>(data.data());
    z_.avail_in = static_cast<uInt>(data.size());
    while (true) {
      GB_CO_TRY(std::string piece, co_await run_blocking(pool_, [&] { return decompress(); }));
      const bool full = piece.size() == kPiece;
      if (!piece.empty()) GB_CO_TRYV(co_await sink_->write(std::move(piece)));
      if (z_.avail_in == 0 && !full) co_return Result<void>();
    }
  }

  Async<std::optional<FileEntry>> finish() override {
    if (kind_ == Kind::kUnknown && !start_.empty()) GB_CO_TRYV(co_await sink_->write(std::move(start_)));
    if (kind_ == Kind::kGzip && !member_ended_) co_return fail(Code::kInvalidArgument, "the gzip data is cut off");
    co_return co_await sink_->finish();
  }

 private:
  enum class Kind { kUnknown, kPlain, kGzip };

  Result<std::string> decompress() {
    std::string out(kPiece, '\0');
    z_.next_out = reinterpret_cast<Bytef*>(out.data());
    z_.avail_out = static_cast<uInt>(out.size());
    while (z_.avail_out > 0) {
      if (member_ended_) {  // more members may follow, or padding
        while (z_.avail_in > 0 && *z_.next_in == 0) --z_.avail_in, ++z_.next_in;
        if (z_.avail_in == 0) break;
        GB_ASSERT(::inflateReset2(&z_, kGzip) == Z_OK);
        member_ended_ = false;
      }
      const int rc = ::inflate(&z_, Z_NO_FLUSH);
      member_ended_ = rc == Z_STREAM_END;
      if (rc == Z_BUF_ERROR) break;  // all input is used
      if (rc != Z_OK && rc != Z_STREAM_END) return fail(Code::kInvalidArgument, "the gzip data is broken");
    }
    out.resize(out.size() - z_.avail_out);
    return out;
  }

  BlockingPool& pool_;
  std::unique_ptr<ByteSink> sink_;
  z_stream z_{};
  Kind kind_ = Kind::kUnknown;
  std::string start_;
  bool member_ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> gzip_source(BlockingPool& pool, std::unique_ptr<ByteSource> source) {
  return std::make_unique<GzipSource>(pool, std::move(source));
}
std::unique_ptr<ByteSink> gunzip_sink(BlockingPool& pool, std::unique_ptr<ByteSink> sink) {
  return std::make_unique<GunzipSink>(pool, std::move(sink));
}

}  // namespace glovebox::sandbox
