// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"
#include "api/lizard/info.h"
#include "api/lizard/write_request.h"

namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
constexpr size_t kMaxWriteBody = 512ull << 20;       // of one write
constexpr size_t kMaxBufferedContent = 1024ull << 20;  // of all writes under way together
constexpr size_t kTextPiece = 256 << 10;
constexpr size_t kPage = 1000;

// What the writes under way hold in memory; loop thread only.
class Buffered {
 public:
  Result<void> grow_to(size_t bytes) {
    total_ += bytes - mine_;
    mine_ = bytes;
    if (total_ <= kMaxBufferedContent) return {};
    return fail(Code::kUnavailable, "too many large files are being written at once", {{"retry_after", "1"}});
  }
  ~Buffered() { total_ -= mine_; }

 private:
  static inline size_t total_ = 0;
  size_t mine_ = 0;
};

Async<WriteRequest> read_write_request(http::BodyReader& body, Buffered& buffered) {
  WriteParser parser;
  for (size_t total = 0;;) {
    GB_CO_TRY(const std::string piece, co_await body.read_some());
    if (piece.empty()) break;
    total += piece.size();
    if (total > kMaxWriteBody) co_return fail(Code::kPayloadTooLarge, "the body is larger than 512 MiB");
    GB_CO_TRYV(parser.take(piece));
    GB_CO_TRYV(buffered.grow_to(parser.buffered()));
  }
  co_return parser.finish();
}

Async<void> write_content(sandbox::ByteSink& sink, const WriteRequest& request) {
  if (request.encoding == "base64") {
    Base64Reader reader(request.content);
    for (;;) {
      GB_CO_TRY(auto bytes, reader.read());
      if (bytes.empty()) co_return Result<void>();
      GB_CO_TRYV(co_await sink.write(std::move(bytes)));
    }
  }
  for (size_t at = 0; at < request.content.size(); at += kTextPiece) {
    GB_CO_TRYV(co_await sink.write(request.content.substr(at, kTextPiece)));
  }
  co_return Result<void>();
}

Async<void> write_file(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  Buffered buffered;
  GB_CO_TRY(const auto request, co_await read_write_request(call.exchange.body, buffered));
  sandbox::WriteOptions options;  // 0644, with parents, replacing
  GB_CO_TRY(auto sink, co_await call.service.write_file(call.caller, call.param("id"), request.user, request.path, options));
  GB_CO_TRYV(co_await write_content(*sink, request));
  GB_CO_TRYV(co_await sink->finish());
  co_return co_await call.reply(bj::object{{"ok", true}});
}

Async<void> read_file(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(auto source, co_await call.service.read_file(call.caller, call.param("id"), call.query("user"), call.query("path"), 0,
                                                         std::nullopt));
  http::Headers headers = call.headers();
  headers.emplace_back("Content-Type", "application/octet-stream");
  if (source->length) headers.emplace_back("Content-Length", std::to_string(*source->length));
  auto& response = call.exchange.response;
  GB_CO_TRYV(co_await response.begin(200, std::move(headers)));
  for (;;) {
    GB_CO_TRY(const auto bytes, co_await source->read());
    if (bytes.empty()) break;
    GB_CO_TRYV(co_await response.write(bytes));
  }
  co_return co_await response.end();
}

// The protocol has no pages: ours are sent one after the other as one array.
Async<void> list_files(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  auto& response = call.exchange.response;
  std::string after;
  do {
    GB_CO_TRY(const auto page, co_await call.service.list_files(call.caller, call.param("id"), call.query("user"),
                                                                call.query("path"), after, kPage));
    if (!response.head_sent()) GB_CO_TRYV(co_await response.begin(200, call.json_headers()));
    std::string text;
    for (const auto& entry : page.items) {
      text += (text.empty() && after.empty() ? "[" : ",") + json::to_text(file_object(entry));
    }
    if (text.empty() && after.empty()) text = "[";
    after = page.next_cursor;
    if (after.empty()) text += "]";
    GB_CO_TRYV(co_await response.write(text));
  } while (!after.empty());
  co_return co_await response.end();
}

Async<void> stat_file(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto entry, co_await call.service.stat(call.caller, call.param("id"), call.query("user"), call.query("path"), false));
  co_return co_await call.reply(file_object(entry));
}

Async<void> move_file(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto from, r.string("from", 1).required());
  GB_CO_TRY(const auto to, r.string("to", 1).required());
  GB_CO_TRY(const auto user, r.string("user").or_default(""));
  GB_CO_TRYV(r.done());
  GB_CO_TRYV(co_await call.service.move(call.caller, call.param("id"), user, from, to, true, true));  // as mv(1)
  co_return co_await call.reply_empty();
}

Async<void> remove_file(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto path, r.string("path", 1).required());
  GB_CO_TRY(const auto user, r.string("user").or_default(""));
  GB_CO_TRYV(r.done());
  GB_CO_TRYV(co_await call.service.remove(call.caller, call.param("id"), user, path, true));
  co_return co_await call.reply_empty();
}

}  // namespace

void add_file_routes(Routes& routes) {
  routes.add("POST", "/api/sandboxes/{id}/files", write_file);
  routes.add("GET", "/api/sandboxes/{id}/files", read_file);
  routes.add("DELETE", "/api/sandboxes/{id}/files", remove_file);
  routes.add("GET", "/api/sandboxes/{id}/files/list", list_files);
  routes.add("GET", "/api/sandboxes/{id}/files/stat", stat_file);
  routes.add("POST", "/api/sandboxes/{id}/files/move", move_file);
}

}  // namespace glovebox::api::lizard
