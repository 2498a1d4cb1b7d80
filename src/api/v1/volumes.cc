// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"

// Disks that outlive sandboxes.
namespace glovebox::api::v1 {
namespace bj = boost::json;
namespace {

constexpr int64_t kMaxSizeMb = 1LL << 40;  // the operator's limit decides below this

Result<uint64_t> bytes_of(Result<std::optional<int64_t>> megabytes, uint64_t otherwise) {
  GB_TRY(const auto mb, std::move(megabytes));
  return mb ? static_cast<uint64_t>(*mb) << 20 : otherwise;
}

Async<void> create(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  sandbox::VolumeSpec spec;
  GB_CO_TRY(spec.name, r.string("name", 1, 64).required());
  GB_CO_TRY(spec.bytes, bytes_of(r.integer("size_mb", 1, kMaxSizeMb).optional(), spec.bytes));
  GB_CO_TRY(spec.labels, r.string_map("labels", 64).or_default({}));
  GB_CO_TRY(const bool get_or_create, r.boolean("get_or_create").or_default(false));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto made,
            co_await parts.volumes->create_volume(call.caller, std::move(spec), get_or_create));
  auto headers = call.headers();
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Location", "/v1/volumes/" + made.info.id);
  co_return co_await call.exchange.response.send(made.existed ? 200 : 201, std::move(headers),
                                                 json::to_text(view(made.info)));
}

Async<void> list(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"limit", "cursor"}));
  GB_CO_TRY(const size_t limit, query_limit(call.request()));
  GB_CO_TRY(const auto page,
            parts.volumes->list_volumes(call.caller, limit,
                                        call.request().query_value("cursor").value_or("")));
  bj::array items;
  for (const auto& info : page.items) items.push_back(view(info));
  co_return co_await call.send_json(
      200, json::to_text(bj::object{{"volumes", std::move(items)},
                                    {"next_cursor", page_cursor(page.next_cursor)}}));
}

Async<void> show(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto info, parts.volumes->get_volume(call.caller, call.param("volume")));
  co_return co_await call.send_json(200, json::to_text(view(info)));
}

Async<void> grow(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  GB_CO_TRY(const auto mb, r.integer("size_mb", 1, kMaxSizeMb).required());
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info, co_await parts.volumes->grow_volume(call.caller, call.param("volume"),
                                                                 static_cast<uint64_t>(mb) << 20));
  co_return co_await call.send_json(200, json::to_text(view(info)));
}

Async<void> remove(const Parts& parts, Call& call) {
  GB_CO_TRYV(co_await parts.volumes->delete_volume(call.caller, call.param("volume")));
  co_return co_await call.send_json(200, "{}");
}

Async<void> read_archive(const Parts& parts, Call& call) {
  GB_CO_TRY(auto source, co_await parts.volumes->export_volume(call.caller, call.param("volume")));
  auto headers = call.headers();
  headers.emplace_back("Content-Type", "application/x-tar");
  if (source->length) headers.emplace_back("Content-Length", std::to_string(*source->length));
  co_return co_await stream_out(call, 200, std::move(headers), *source);
}

Async<void> write_archive(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_archive(call.request()));
  GB_CO_TRY(auto sink, co_await parts.volumes->import_volume(call.caller, call.param("volume")));
  GB_CO_TRYV(co_await stream_in(call, *sink));
  sink.reset();  // the volume is free again before the caller knows
  co_return co_await show(parts, call);
}

}  // namespace

bj::object view(const sandbox::VolumeInfo& v) {
  bj::object labels;
  for (const auto& [key, value] : v.labels) labels[key] = value;
  return {{"id", v.id},
          {"name", v.name},
          {"size_mb", v.bytes >> 20},
          {"used_bytes", v.used_bytes ? bj::value(*v.used_bytes) : bj::value(nullptr)},
          {"labels", std::move(labels)},
          {"writer", page_cursor(v.writer)},
          {"readers", bj::array(v.readers.begin(), v.readers.end())},
          {"created_at", iso_time(v.created_at)}};
}

void add_volume_routes(http::Router& router, const Parts& parts) {
  const auto add = [&](std::string_view method, const std::string& pattern,
                       Async<void> (*handler)(const Parts&, Call&)) {
    add_route(router, *parts.keys, method, pattern,
              [&parts, handler](Call& call) { return handler(parts, call); });
  };
  const std::string one = "/v1/volumes/{volume}";
  add("POST", "/v1/volumes", create);
  add("GET", "/v1/volumes", list);
  add("GET", one, show);
  add("PATCH", one, grow);
  add("DELETE", one, remove);
  add("GET", one + "/archive", read_archive);
  add("PUT", one + "/archive", write_archive);
}

}  // namespace glovebox::api::v1
