// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshots.h"

#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"
#include "policy/egress.h"

// Snapshots, and what comes of them: forks, resets, sandboxes whose memory is on disk.
namespace glovebox::api::v1 {
namespace bj = boost::json;
namespace {

constexpr int64_t kMaxForks = 100;

Result<std::optional<runtime::Kept>> read_require(json::Reader& r) {
  GB_TRY(const auto require, r.one_of("require", {"memory+files", "files"}).optional());
  return require ? runtime::kept_from_name(*require) : std::nullopt;
}

Async<void> send(Call& call, int status, const sandbox::SnapshotInfo& info) {
  auto headers = call.headers();
  headers.emplace_back("Content-Type", "application/json");
  if (status == 201) headers.emplace_back("Location", "/v1/snapshots/" + info.id);
  co_return co_await call.exchange.response.send(status, std::move(headers),
                                                 json::to_text(view(info)));
}

Async<void> create(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  json::Reader r(body);
  sandbox::SnapshotSpec spec;
  GB_CO_TRY(spec.name, r.string("name", 1, 128).or_default(""));
  GB_CO_TRY(spec.labels, r.string_map("labels", 64).or_default({}));
  GB_CO_TRY(spec.require, read_require(r));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info,
            co_await parts.snapshots->snapshot(call.caller, call.param("id"), std::move(spec)));
  co_return co_await send(call, 201, info);
}

Result<sandbox::SnapshotFilter> read_filter(const http::Request& request) {
  GB_TRYV(check_query(request, {"sandbox", "name", "label.", "limit", "cursor"}));
  sandbox::SnapshotFilter filter;
  GB_TRY(filter.limit, query_limit(request));
  filter.cursor = request.query_value("cursor").value_or("");
  filter.source_sandbox = request.query_value("sandbox").value_or("");
  filter.name = request.query_value("name").value_or("");
  constexpr std::string_view kLabel = "label.";
  for (const auto& [name, value] : request.query) {
    if (name.starts_with(kLabel)) filter.labels[name.substr(kLabel.size())] = value;
  }
  return filter;
}

Async<void> list(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto filter, read_filter(call.request()));
  GB_CO_TRY(const auto page, parts.snapshots->list_snapshots(call.caller, filter));
  bj::array items;
  for (const auto& info : page.items) items.push_back(view(info));
  const bj::object out{{"snapshots", std::move(items)},
                       {"next_cursor", page_cursor(page.next_cursor)}};
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> show(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto info, parts.snapshots->get_snapshot(call.caller, call.param("id")));
  co_return co_await send(call, 200, info);
}

Async<void> update(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  GB_CO_TRY(auto name, r.string("name", 1, 128).optional());
  GB_CO_TRY(auto labels, r.string_map("labels", 64).optional());
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info,
            co_await parts.snapshots->update_snapshot(call.caller, call.param("id"),
                                                      std::move(name), std::move(labels)));
  co_return co_await send(call, 200, info);
}

Async<void> remove(const Parts& parts, Call& call) {
  GB_CO_TRYV(co_await parts.snapshots->delete_snapshot(call.caller, call.param("id")));
  co_return co_await call.send_json(200, "{}");
}

Async<void> verify(const Parts& parts, Call& call) {
  GB_CO_TRYV(co_await parts.snapshots->verify_snapshot(call.caller, call.param("id")));
  co_return co_await call.send_json(200, "{}");
}

Result<sandbox::ForkSpec> read_fork(const bj::value& body) {
  json::Reader r(body);
  sandbox::ForkSpec spec;
  GB_TRY(const auto count, r.integer("count", 1, kMaxForks).or_default(1));
  spec.count = static_cast<size_t>(count);
  GB_TRY(const auto lifetime, r.integer("lifetime_ms", 0, kMaxTimeMs).optional());
  if (lifetime) spec.lifetime = sandbox::Millis(*lifetime);
  GB_TRY(spec.env, r.string_map("env", 1000).optional());
  GB_TRY(spec.secrets, r.string_map("secrets", 1000).or_default({}));
  GB_TRY(spec.inherit_secrets, r.boolean("inherit_secrets").or_default(false));
  GB_TRY(spec.metadata, r.string_map("metadata", 64).optional());
  GB_TRY(spec.network, read_network(r));
  GB_TRY(spec.require, read_require(r));
  GB_TRYV(r.done());
  return spec;
}

Async<void> fork(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  GB_CO_TRY(auto spec, read_fork(body));
  GB_CO_TRY(const auto children,
            co_await parts.snapshots->fork(call.caller, call.param("id"), std::move(spec)));
  bj::array items;
  for (const auto& child : children) items.push_back(view(child));
  Result<void> sent = fail(Code::kCancelled, "the client went away while its sandboxes started");
  if (!call.exchange.client_gone())
    sent = co_await call.send_json(201, json::to_text(bj::object{{"sandboxes", std::move(items)}}));
  // Nobody knows their ids: they would only run out their lifetime.
  if (!sent) {
    for (const auto& child : children) (void)co_await parts.service->kill(call.caller, child.id);
  }
  co_return sent;
}

Async<void> reset(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  json::Reader r(body);
  GB_CO_TRY(const auto snapshot, r.string("snapshot", 1, 64).or_default(""));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info,
            co_await parts.snapshots->reset(call.caller, call.param("id"), snapshot));
  co_return co_await call.send_json(200, json::to_text(view(info)));
}

Async<void> hibernate(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  json::Reader r(body);
  GB_CO_TRY(const auto require, read_require(r));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info,
            co_await parts.snapshots->hibernate(call.caller, call.param("id"), require));
  co_return co_await call.send_json(200, json::to_text(view(info)));
}

Async<void> diff(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"against", "limit", "cursor"}));
  GB_CO_TRY(const size_t limit, query_limit(call.request()));
  std::string against = call.request().query_value("against").value_or("template");
  if (against == "template") against.clear();
  const std::string cursor = call.request().query_value("cursor").value_or("");
  GB_CO_TRY(const auto page, co_await parts.snapshots->diff(call.caller, call.param("id"), against, limit, cursor));
  bj::array items;
  for (const auto& change : page.items) items.push_back(view(change));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"items", std::move(items)}, {"next_cursor", page_cursor(page.next_cursor)}}));
}

}  // namespace

void add_snapshot_routes(http::Router& router, const Parts& parts) {
  const auto add = [&](std::string_view method, std::string_view pattern,
                       Async<void> (*handler)(const Parts&, Call&)) {
    add_route(router, *parts.keys, method, pattern,
              [&parts, handler](Call& call) { return handler(parts, call); });
  };
  add("POST", "/v1/sandboxes/{id}/snapshots", create);
  add("POST", "/v1/sandboxes/{id}/fork", fork);
  add("POST", "/v1/sandboxes/{id}/reset", reset);
  add("POST", "/v1/sandboxes/{id}/hibernate", hibernate);
  add("GET", "/v1/sandboxes/{id}/diff", diff);
  add("GET", "/v1/snapshots", list);
  add("GET", "/v1/snapshots/{id}", show);
  add("PATCH", "/v1/snapshots/{id}", update);
  add("DELETE", "/v1/snapshots/{id}", remove);
  add("POST", "/v1/snapshots/{id}/verify", verify);
}

}  // namespace glovebox::api::v1
