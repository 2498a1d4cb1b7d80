// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <set>

#include "api/e2b/daemon_call.h"
#include "api/e2b/errors.h"
#include "api/e2b/multipart.h"
#include "base/text.h"
#include "http/json.h"
#include "sandbox/gzip.h"

// GET and POST /files: contents.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;

// Download ----------------------------------------------------------------------------------------------------------------

struct Range {
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

// "bytes=a-b", "bytes=a-" or "bytes=-n" of a file of `size` bytes. Nothing for what a server may ignore.
std::optional<Range> read_range(std::string_view header, uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  const size_t dash = header.find('-');
  if (dash == header.npos || header.find(',') != header.npos) return std::nullopt;
  const auto first = parse_int(header.substr(0, dash)), last = parse_int(header.substr(dash + 1));
  if (dash == 0 && last && *last > 0) {
    const uint64_t wanted = std::min<uint64_t>(static_cast<uint64_t>(*last), size);
    return Range{size - wanted, wanted};
  }
  const bool is_open = dash + 1 == header.size();
  if (!first || *first < 0 || (!last && !is_open) || (last && *last < *first)) return std::nullopt;
  Range out{static_cast<uint64_t>(*first), std::nullopt};
  if (out.offset >= size) return out;
  const uint64_t end = last ? std::min<uint64_t>(static_cast<uint64_t>(*last), size - 1) : size - 1;
  out.length = end - out.offset + 1;
  return out;
}

http::Headers download_headers(const std::string& path) {
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", "application/octet-stream");
  headers.emplace_back("Accept-Ranges", "bytes");
  headers.emplace_back("Vary", "Accept-Encoding");
  const std::string name = path.substr(path.rfind('/') + 1);
  headers.emplace_back("Content-Disposition", "inline; filename*=UTF-8''" + http::percent_encode(name));
  return headers;
}

Async<void> send_bytes(DaemonCall& call, sandbox::ByteSource& source, int status, http::Headers headers) {
  if (source.length) headers.emplace_back("Content-Length", std::to_string(*source.length));
  auto& response = call.exchange.response;
  GB_CO_TRYV(co_await response.begin(status, std::move(headers)));
  for (;;) {
    GB_CO_TRY(const auto bytes, co_await source.read());
    if (bytes.empty()) break;
    GB_CO_TRYV(co_await response.write(bytes));
  }
  co_return co_await response.end();
}

Async<void> download_part(DaemonCall& call, const std::string& path, const Range& range, uint64_t size) {
  http::Headers headers = download_headers(path);
  if (!range.length) {
    headers.emplace_back("Content-Range", "bytes */" + std::to_string(size));
    co_return co_await call.exchange.response.send(416, std::move(headers), "");
  }
  headers.emplace_back("Content-Range", "bytes " + std::to_string(range.offset) + "-" + std::to_string(range.offset + *range.length - 1) +
                                            "/" + std::to_string(size));
  GB_CO_TRY(auto source, co_await call.parts.service.read_file(call.caller, call.info.id, call.user, path, range.offset, range.length));
  co_return co_await send_bytes(call, *source, 206, std::move(headers));
}

// Upload ------------------------------------------------------------------------------------------------------------------

// The files of one request, in the order in which they come.
class Uploads {
 public:
  explicit Uploads(DaemonCall& call) : call_(call) {}

  Async<void> begin(const std::string& target) {
    if (target.empty()) co_return fail(Code::kInvalidArgument, "path: is required", {{"field", "path"}});
    GB_CO_TRY(path_, call_.path(target));
    path_ = std::filesystem::path(path_).lexically_normal().string();
    if (!seen_.insert(path_).second) co_return fail(Code::kInvalidArgument, "the path '" + path_ + "' is there twice");
    GB_CO_TRY(sink_, co_await call_.parts.service.write_file(call_.caller, call_.info.id, call_.user, path_, {}));
    co_return Result<void>();
  }
  Async<void> write(std::string bytes) { return sink_->write(std::move(bytes)); }
  Async<void> end() {
    GB_CO_TRYV(co_await sink_->finish());
    sink_.reset();
    done_.push_back(bj::object{{"name", utf8_lossy(path_.substr(path_.rfind('/') + 1))}, {"path", utf8_lossy(path_)}, {"type", "file"}});
    co_return Result<void>();
  }
  bool is_open() const { return sink_ != nullptr; }
  bj::array done() { return std::move(done_); }

 private:
  DaemonCall& call_;
  std::set<std::string> seen_;
  std::string path_;
  std::unique_ptr<sandbox::ByteSink> sink_;
  bj::array done_;
};

// Where the bytes of a body go, decompressed ones as well.
class RawBody : public sandbox::ByteSink {
 public:
  explicit RawBody(Uploads& uploads) : uploads_(uploads) {}
  Async<void> write(std::string data) override { return uploads_.write(std::move(data)); }
  Async<std::optional<sandbox::FileEntry>> finish() override {
    GB_CO_TRYV(co_await uploads_.end());
    co_return std::optional<sandbox::FileEntry>();
  }

 private:
  Uploads& uploads_;
};

class FormBody : public sandbox::ByteSink {
 public:
  FormBody(Uploads& uploads, Multipart parser, std::string path)
      : uploads_(uploads), parser_(std::move(parser)), path_(std::move(path)) {}

  Async<void> write(std::string data) override {
    GB_CO_TRY(auto events, parser_.take(data));
    for (auto& event : events) GB_CO_TRYV(co_await take(std::move(event)));
    co_return Result<void>();
  }
  Async<std::optional<sandbox::FileEntry>> finish() override {
    GB_CO_TRYV(parser_.finish());
    co_return std::optional<sandbox::FileEntry>();
  }

 private:
  Async<void> take(Multipart::Event event) {
    using Kind = Multipart::Event::Kind;
    if (event.kind == Kind::kBegin) {
      is_file_ = event.name == "file";
      if (is_file_) co_return co_await uploads_.begin(path_.empty() ? event.file_name : path_);
    } else if (is_file_ && event.kind == Kind::kData) {
      co_return co_await uploads_.write(std::move(event.data));
    } else if (is_file_) {
      co_return co_await uploads_.end();
    }
    co_return Result<void>();
  }

  Uploads& uploads_;
  Multipart parser_;
  std::string path_;
  bool is_file_ = false;
};

bool is_gzip(const http::Request& request) { return http::header_lists(request.headers, "Content-Encoding", "gzip"); }

Async<std::unique_ptr<sandbox::ByteSink>> body_sink(DaemonCall& call, Uploads& uploads) {
  const std::string type = call.request().header("Content-Type").value_or("");
  const std::string path = call.request().query_value("path").value_or("");
  std::unique_ptr<sandbox::ByteSink> sink;
  if (type.starts_with("multipart/form-data")) {
    GB_CO_TRY(auto parser, Multipart::create(type));
    sink = std::make_unique<FormBody>(uploads, std::move(parser), path);
  } else if (type.starts_with("application/octet-stream")) {
    GB_CO_TRYV(co_await uploads.begin(path));
    sink = std::make_unique<RawBody>(uploads);
  } else {
    co_return fail(Code::kInvalidArgument, "Content-Type: must be multipart/form-data or application/octet-stream");
  }
  if (is_gzip(call.request())) sink = sandbox::gunzip_sink(call.parts.pool, std::move(sink));
  co_return sink;
}

Async<void> take_body(DaemonCall& call, sandbox::ByteSink& sink) {
  for (;;) {
    GB_CO_TRY(std::string piece, co_await call.exchange.body.read_some());
    if (piece.empty()) break;
    GB_CO_TRYV(co_await sink.write(std::move(piece)));
  }
  GB_CO_TRYV(co_await sink.finish());
  co_return Result<void>();
}

}  // namespace

Async<void> download(DaemonCall& call) {
  GB_CO_TRY(const std::string path, call.path(call.request().query_value("path").value_or("")));
  if (const auto header = call.request().header("Range")) {
    GB_CO_TRY(const auto entry, co_await call.parts.service.stat(call.caller, call.info.id, call.user, path, true));
    const auto range = entry.type == "file" ? read_range(*header, entry.size) : std::nullopt;
    if (range) co_return co_await download_part(call, path, *range, entry.size);
  }
  auto source = co_await call.parts.service.read_file(call.caller, call.info.id, call.user, path, 0, std::nullopt);
  if (!source && source.error().code == Code::kFileNotFound) co_return fail(Code::kFileNotFound, "path '" + path + "' does not exist");
  if (!source) co_return fail(std::move(source).error());
  co_return co_await send_bytes(call, **source, 200, download_headers(path));
}

Async<void> upload(DaemonCall& call) {
  const auto encoding = call.request().header("Content-Encoding");
  if (encoding && !is_gzip(call.request()) && !http::same_name(*encoding, "identity")) {
    co_return fail(Code::kInvalidArgument, "Content-Encoding: must be gzip or identity");
  }
  Uploads uploads(call);
  GB_CO_TRY(auto sink, co_await body_sink(call, uploads));
  GB_CO_TRYV(co_await take_body(call, *sink));
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", "application/json");
  co_return co_await call.exchange.response.send(200, std::move(headers), json::to_text(uploads.done()));
}

}  // namespace glovebox::api::e2b
