// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;
constexpr uint64_t kMaxDiscarded = 1 << 30;

Async<void> stream_out(Call& call, int status, http::Headers headers, sandbox::ByteSource& source) {
  auto& response = call.exchange.response;
  // The first piece comes before the head: what fails at once is still a typed answer.
  GB_CO_TRY(std::string piece, co_await source.read());
  GB_CO_TRYV(co_await response.begin(status, std::move(headers)));
  while (!piece.empty()) {
    GB_CO_TRYV(co_await response.write(piece));
    GB_CO_TRY(piece, co_await source.read());
  }
  co_return co_await response.end();
}

Result<void> check_archive(const http::Request& request) {
  if (request.has_body) return {};
  return fail(Code::kInvalidArgument, "the body must be a tar archive");
}

Async<std::optional<sandbox::FileEntry>> stream_in(Call& call, sandbox::ByteSink& sink) {
  while (true) {
    GB_CO_TRY(std::string piece, co_await call.exchange.body.read_some(kPieceBytes));
    if (piece.empty()) co_return co_await sink.finish();
    auto written = co_await sink.write(std::move(piece));
    if (written) continue;
    // Most clients look for an answer only when they have sent everything: take the rest, up to a bound, so that they see ours.
    for (uint64_t taken = 0; taken < kMaxDiscarded;) {
      auto rest = co_await call.exchange.body.read_some(kPieceBytes);
      if (!rest || rest->empty()) break;
      taken += rest->size();
    }
    co_return fail(written.error());
  }
}

namespace {

struct Target {
  std::string user, path;
};

Result<Target> target_of(const http::Request& request) {
  Target t{request.query_value("user").value_or(""), request.query_value("path").value_or("")};
  if (!request.query_value("path")) return fail(Code::kInvalidArgument, "path: is required", {{"field", "path"}});
  return t;
}

Result<uint32_t> parse_mode(const std::string& text) {
  uint32_t mode = 0;
  const bool fits = text.size() >= 3 && text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos;
  if (!fits) return fail(Code::kInvalidArgument, "mode: must be octal permission bits such as 0644", {{"field", "mode"}});
  for (const char digit : text) mode = mode * 8 + static_cast<uint32_t>(digit - '0');
  return mode;
}

// `name` as text, or `name`_b64 as bytes.
Result<std::string> path_field(json::Reader& r, std::string_view name) {
  const std::string encoded_name = std::string(name) + "_b64";
  GB_TRY(const auto text, r.string(name, 1, 4095).optional());
  GB_TRY(const auto encoded, r.string(encoded_name, 1, 8192).optional());
  if (text && encoded) return fail(r.error(name, "give it as text or as base64, not both"));
  if (text) return *text;
  if (!encoded) return fail(r.error(name, "is required"));
  auto bytes = base64_decode(*encoded);
  if (!bytes) return fail(r.error(encoded_name, "is not base64"));
  return std::move(*bytes);
}

// "bytes=0-99", "bytes=100-", "bytes=-100" against the file's size.
struct Range {
  uint64_t first = 0, length = 0;
};
Result<std::optional<Range>> parse_range(const http::Request& request, uint64_t size) {
  const auto header = request.header("Range");
  if (!header) return std::nullopt;
  const auto bad = [&] {
    return fail(Code::kInvalidArgument, "Range: not satisfiable for a file of " + std::to_string(size) + " bytes",
                {{"field", "Range"}, {"status", "416"}});
  };
  if (!header->starts_with("bytes=") || header->find(',') != std::string::npos) return std::nullopt;  // RFC 9110: may be ignored
  const std::string_view spec = std::string_view(*header).substr(6);
  const size_t dash = spec.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = parse_int(spec.substr(0, dash)), last = parse_int(spec.substr(dash + 1));
  if (dash == 0) {
    if (!last || *last <= 0 || size == 0) return bad();
    const uint64_t length = std::min<uint64_t>(size, static_cast<uint64_t>(*last));
    return Range{size - length, length};
  }
  if (!first || *first < 0 || (spec.size() > dash + 1 && !last)) return std::nullopt;
  if (static_cast<uint64_t>(*first) >= size || (last && *last < *first)) return bad();
  const uint64_t end = last ? std::min<uint64_t>(size, static_cast<uint64_t>(*last) + 1) : size;
  return Range{static_cast<uint64_t>(*first), end - static_cast<uint64_t>(*first)};
}

Async<void> read_file(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"path", "user"}));
  GB_CO_TRY(const Target t, target_of(call.request()));
  std::optional<Range> range;
  auto headers = call.headers();
  if (call.request().header("Range")) {
    GB_CO_TRY(const auto entry, co_await parts.service->stat(call.caller, call.param("id"), t.user, t.path, true));
    auto parsed = parse_range(call.request(), entry.size);
    if (!parsed) co_return co_await call.exchange.response.send_error(parsed.error(), {{"X-Request-Id", call.caller.request_id}, {"Content-Range", "bytes */" + std::to_string(entry.size)}}, 416);
    range = *parsed;
    if (range) {
      headers.emplace_back("Content-Range", "bytes " + std::to_string(range->first) + "-" +
                                                std::to_string(range->first + range->length - 1) + "/" + std::to_string(entry.size));
    }
  }
  const auto length = range ? std::optional<uint64_t>(range->length) : std::nullopt;
  GB_CO_TRY(auto source, co_await parts.service->read_file(call.caller, call.param("id"), t.user, t.path, range ? range->first : 0, length));
  headers.emplace_back("Content-Type", "application/octet-stream");
  headers.emplace_back("Accept-Ranges", "bytes");
  if (source->length) headers.emplace_back("Content-Length", std::to_string(*source->length));
  co_return co_await stream_out(call, range ? 206 : 200, std::move(headers), *source);
}

Async<void> write_file(const Parts& parts, Call& call) {
  const auto& request = call.request();
  GB_CO_TRYV(check_query(request, {"path", "user", "mode", "parents", "exclusive", "append"}));
  GB_CO_TRY(const Target t, target_of(request));
  sandbox::WriteOptions options;
  if (const auto mode = request.query_value("mode")) {
    GB_CO_TRY(options.mode, parse_mode(*mode));
  }
  GB_CO_TRY(options.parents, query_bool(request, "parents", true));
  GB_CO_TRY(options.exclusive, query_bool(request, "exclusive", false));
  GB_CO_TRY(options.append, query_bool(request, "append", false));
  GB_CO_TRY(auto sink, co_await parts.service->write_file(call.caller, call.param("id"), t.user, t.path, options));
  GB_CO_TRY(auto entry, co_await stream_in(call, *sink));
  if (!entry) co_return fail(Code::kAgentProtocol, "the agent did not describe the file it wrote");
  co_return co_await call.send_json(200, json::to_text(view(*entry)));
}

Async<void> remove(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"path", "user", "recursive"}));
  GB_CO_TRY(const Target t, target_of(call.request()));
  GB_CO_TRY(const bool recursive, query_bool(call.request(), "recursive", false));
  GB_CO_TRYV(co_await parts.service->remove(call.caller, call.param("id"), t.user, t.path, recursive));
  co_return co_await call.send_json(200, "{}");
}

Async<void> stat(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"path", "user", "follow"}));
  GB_CO_TRY(const Target t, target_of(call.request()));
  GB_CO_TRY(const bool follow, query_bool(call.request(), "follow", false));
  GB_CO_TRY(const auto entry, co_await parts.service->stat(call.caller, call.param("id"), t.user, t.path, follow));
  co_return co_await call.send_json(200, json::to_text(view(entry)));
}

Async<void> list(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"path", "user", "limit", "cursor"}));
  GB_CO_TRY(const Target t, target_of(call.request()));
  GB_CO_TRY(const size_t limit, query_limit(call.request()));
  // The cursor is the last name, as base64 so that any bytes pass.
  const auto after_name = base64_decode(call.request().query_value("cursor").value_or(""));
  if (!after_name) co_return fail(Code::kInvalidArgument, "cursor: is not one of ours", {{"field", "cursor"}});
  GB_CO_TRY(const auto page, co_await parts.service->list_files(call.caller, call.param("id"), t.user, t.path, *after_name, limit));
  bj::array entries;
  for (const auto& entry : page.items) entries.push_back(view(entry));
  const bj::object out{{"entries", std::move(entries)}, {"next_cursor", page_cursor(base64_encode(page.next_cursor))}};
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> make_directory(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"user"}));
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  GB_CO_TRY(const std::string path, path_field(r, "path"));
  GB_CO_TRY(const bool parents, r.boolean("parents").or_default(true));
  GB_CO_TRY(const auto mode_text, r.string("mode").or_default("0755"));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const uint32_t mode, parse_mode(mode_text));
  const std::string user = call.request().query_value("user").value_or("");
  GB_CO_TRY(const bool created, co_await parts.service->make_directory(call.caller, call.param("id"), user, path, parents, mode));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"created", created}}));
}

Async<void> move(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"user"}));
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  GB_CO_TRY(const std::string from, path_field(r, "from"));
  GB_CO_TRY(const std::string to, path_field(r, "to"));
  GB_CO_TRY(const bool parents, r.boolean("parents").or_default(false));
  GB_CO_TRY(const bool overwrite, r.boolean("overwrite").or_default(false));
  GB_CO_TRYV(r.done());
  const std::string user = call.request().query_value("user").value_or("");
  GB_CO_TRYV(co_await parts.service->move(call.caller, call.param("id"), user, from, to, parents, overwrite));
  co_return co_await call.send_json(200, "{}");
}

Async<void> read_archive(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"path", "user", "gzip"}));
  GB_CO_TRY(const Target t, target_of(call.request()));
  GB_CO_TRY(const bool gzip, query_bool(call.request(), "gzip", false));
  GB_CO_TRY(auto source, co_await parts.service->read_archive(call.caller, call.param("id"), t.user, t.path, gzip));
  auto headers = call.headers();
  headers.emplace_back("Content-Type", gzip ? "application/gzip" : "application/x-tar");
  co_return co_await stream_out(call, 200, std::move(headers), *source);
}

Async<void> write_archive(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"path", "user"}));
  GB_CO_TRY(const Target t, target_of(call.request()));
  GB_CO_TRYV(check_archive(call.request()));
  GB_CO_TRY(auto sink, co_await parts.service->write_archive(call.caller, call.param("id"), t.user, t.path));
  GB_CO_TRYV(co_await stream_in(call, *sink));
  co_return co_await call.send_json(200, "{}");
}

}  // namespace

void add_file_routes(http::Router& router, const Parts& parts) {
  const std::string files = "/v1/sandboxes/{id}/files", archive = "/v1/sandboxes/{id}/archive";
  const auto add = [&](std::string_view method, const std::string& pattern, Async<void> (*handler)(const Parts&, Call&)) {
    add_route(router, *parts.keys, method, pattern, [&parts, handler](Call& call) { return handler(parts, call); });
  };
  add("GET", files, read_file);
  add("PUT", files, write_file);
  add("DELETE", files, remove);
  add("GET", files + "/stat", stat);
  add("GET", files + "/list", list);
  add("GET", files + "/watch", watch_files);
  add("POST", files + "/mkdir", make_directory);
  add("POST", files + "/move", move);
  add("GET", archive, read_archive);
  add("PUT", archive, write_archive);
}

}  // namespace glovebox::api::v1
