// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"
#include "policy/egress.h"

// What a sandbox may reach, and what it tried to.
namespace glovebox::api::v1 {
namespace bj = boost::json;
namespace {

using sandbox::SandboxService;

Result<bj::object> view(const SandboxService::NetworkState& state) {
  GB_TRY(auto effective, json::parse(state.effective));
  return bj::object{{"policy", state.policy ? policy::to_json(*state.policy) : bj::value(nullptr)},
                    {"effective", std::move(effective)},
                    {"link", state.address.has_value()},
                    {"address", state.address ? bj::value(*state.address) : bj::value(nullptr)},
                    {"usage", {{"bytes_in", state.bytes_in}, {"bytes_out", state.bytes_out}, {"open_connections", state.open_connections}}}};
}

Async<void> show(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto state, parts.service->network(call.caller, call.param("id")));
  GB_CO_TRY(const auto out, view(state));
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> replace(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  GB_CO_TRY(auto parsed, policy::parse_network_policy(body, ""));
  auto policy = std::make_shared<policy::NetworkPolicy>(std::move(parsed));
  GB_CO_TRY(const auto state, co_await parts.service->set_network(call.caller, call.param("id"), std::move(policy)));
  GB_CO_TRY(const auto out, view(state));
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> send_log(const Parts& parts, Call& call, SandboxService::NetworkLog log, std::string_view name) {
  GB_CO_TRYV(check_query(call.request(), {"limit", "cursor"}));
  GB_CO_TRY(const size_t limit, query_limit(call.request()));
  const std::string cursor = call.request().query_value("cursor").value_or("");
  GB_CO_TRY(const auto page, co_await parts.service->network_log(call.caller, call.param("id"), log, cursor, limit));
  bj::array entries;
  for (const auto& [line, behind] : page.entries) {
    auto entry = json::parse_object(line);
    if (!entry) continue;  // half a line, of a daemon that was killed
    entry->as_object()["cursor"] = behind;
    entries.push_back(std::move(*entry));
  }
  const bj::object out{{name, std::move(entries)}, {"next_cursor", page.next_cursor}, {"lost", page.lost}};
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> show_default(const Parts& parts, Call& call) {
  const auto policy = parts.service->tenant_network(call.caller);
  co_return co_await call.send_json(200, json::to_text(bj::object{{"policy", policy ? policy::to_json(*policy) : bj::value(nullptr)}}));
}

Async<void> replace_default(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  GB_CO_TRY(const auto body, co_await read_json(call));
  GB_CO_TRY(auto parsed, policy::parse_network_policy(body, ""));
  auto policy = std::make_shared<policy::NetworkPolicy>(std::move(parsed));
  GB_CO_TRYV(co_await parts.service->set_tenant_network(call.caller, std::move(policy)));
  co_return co_await show_default(parts, call);
}

Async<void> list_presets(Call& call) {
  bj::array items;
  for (const auto& preset : policy::presets()) {
    bj::object item{{"name", preset.name}, {"description", preset.description}};
    item["policy"] = policy::to_json(policy::preset_policy(preset.name));
    items.push_back(std::move(item));
  }
  co_return co_await call.send_json(200, json::to_text(bj::object{{"presets", std::move(items)}}));
}

// Says what works by doing it. Numbers of all tenants: for the operator.
Async<void> check_host(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  const auto probed = co_await parts.network->probe();
  const auto out = network::describe(parts.network->status(), probed);
  co_return co_await call.send_json(200, json::to_text(out));
}

}  // namespace

void add_network_routes(http::Router& router, const Parts& parts) {
  const auto& keys = *parts.keys;
  using Log = SandboxService::NetworkLog;
  add_route(router, keys, "GET", "/v1/sandboxes/{id}/network", [&parts](Call& call) { return show(parts, call); });
  add_route(router, keys, "PUT", "/v1/sandboxes/{id}/network", [&parts](Call& call) { return replace(parts, call); });
  add_route(router, keys, "GET", "/v1/sandboxes/{id}/network/connections",
            [&parts](Call& call) { return send_log(parts, call, Log::kConnections, "connections"); });
  add_route(router, keys, "GET", "/v1/sandboxes/{id}/packages",
            [&parts](Call& call) { return send_log(parts, call, Log::kPackages, "packages"); });
  add_route(router, keys, "GET", "/v1/network", [&parts](Call& call) { return check_host(parts, call); });
  add_route(router, keys, "GET", "/v1/network/default", [&parts](Call& call) { return show_default(parts, call); });
  add_route(router, keys, "PUT", "/v1/network/default", [&parts](Call& call) { return replace_default(parts, call); });
  add_route(router, keys, "DELETE", "/v1/network/default", [&parts](Call& call) -> Async<void> {
    GB_CO_TRYV(co_await parts.service->set_tenant_network(call.caller, nullptr));
    co_return co_await show_default(parts, call);
  });
  add_route(router, keys, "GET", "/v1/network/presets", [](Call& call) { return list_presets(call); });
}

}  // namespace glovebox::api::v1
