// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"
#include "metrics/metrics.h"
#include "policy/egress.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;

Result<void> check_admin(const Call& call) {
  if (call.caller.role == sandbox::Role::kAdmin) return {};
  return fail(Code::kForbidden, "this call needs a key with the role admin");
}

namespace {

Async<void> list_templates(const Parts& parts, Call& call) {
  auto all = co_await run_blocking(*parts.pool, [&] { return parts.templates->list(); });
  if (!all) co_return fail(all.error());
  bj::array items;
  for (const auto& tmpl : *all) items.push_back(view(tmpl));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"templates", std::move(items)}}));
}

Async<void> get_template(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto tmpl, parts.templates->find(call.param("name")));
  co_return co_await call.send_json(200, json::to_text(view(tmpl)));
}

Async<void> remove_template(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  // Asked on the loop, so that no sandbox can start between the question and the removal of the name.
  GB_CO_TRYV(parts.templates->remove(call.param("name"), [&](const std::string& version) { return parts.service->template_in_use(version); }));
  co_return co_await call.send_json(200, "{}");
}

Async<void> list_runtimes(const Parts& parts, Call& call) {
  bj::array items;
  bj::value strongest = nullptr;
  for (const auto& known : parts.service->runtimes()) {
    items.push_back(view(known));
    if (known.capability.usable && !known.capability.only_by_name && strongest.is_null()) strongest = runtime::tier_name(known.tier);
  }
  const auto chosen = parts.service->auto_tier(call.caller);
  if (chosen) strongest = runtime::tier_name(*chosen);
  co_return co_await call.send_json(200, json::to_text(bj::object{{"runtimes", std::move(items)}, {"auto", std::move(strongest)}}));
}

// Who claims how much is the operator's to know.
Async<void> get_pool(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  bj::array items;
  for (const auto& state : parts.service->pool()) items.push_back(view(state));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"pools", std::move(items)}}));
}

Async<void> list_keys(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  bj::array items;
  for (const auto& key : parts.keys->list()) items.push_back(view(key));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"keys", std::move(items)}}));
}

Async<void> create_key(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  tenant::NewKey key;
  GB_CO_TRY(key.name, r.string("name", 1, 128).required());
  GB_CO_TRY(key.tenant, r.string("tenant", 1, 64).or_default(call.caller.tenant));
  GB_CO_TRY(const auto role, r.one_of("role", {"admin", "user"}).or_default("user"));
  GB_CO_TRY(const auto tier, r.one_of("default_runtime", {"auto", "microvm", "gvisor", "container"}).or_default("auto"));
  GB_CO_TRYV(r.done());
  key.role = role == "admin" ? sandbox::Role::kAdmin : sandbox::Role::kUser;
  key.default_runtime = runtime::tier_from_name(tier);
  GB_CO_TRY(const auto created, co_await parts.keys->create(std::move(key)));
  auto out = view(created.info);
  out["key"] = created.secret;
  co_return co_await call.send_json(201, json::to_text(out));
}

Async<void> remove_key(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_admin(call));
  GB_CO_TRYV(co_await parts.keys->remove(call.param("id")));
  co_return co_await call.send_json(200, "{}");
}

Async<void> get_info(const Parts& parts, Call& call) {
  bj::object out{{"version", parts.version}, {"uptime_ms", std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - parts.started).count()}};
  bj::object limits;
  for (const auto& [name, value] : parts.limits) limits[name] = value;
  out["limits"] = std::move(limits);
  const auto usual = parts.service->default_network();
  out["network"] = {{"enabled", parts.network->status().is_enabled},
                    {"default_egress", policy::egress_name(usual ? usual->egress : policy::Egress::kNone)}};
  if (call.caller.role == sandbox::Role::kAdmin) out["data_dir"] = parts.data_dir;
  co_return co_await call.send_json(200, json::to_text(out));
}

// For a load balancer or a probe: no key.
void add_open_route(http::Router& router, std::string_view pattern, std::function<std::pair<int, std::string>()> answer) {
  router.add("GET", pattern, [answer = std::move(answer)](http::Exchange& exchange, const http::Params&) -> Awaitable<void> {
    auto [status, body] = answer();
    http::Headers headers{{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}, {"X-Request-Id", http::new_request_id()}};
    (void)co_await exchange.response.send(status, std::move(headers), std::move(body));
  });
}

}  // namespace

void add_other_routes(http::Router& router, const Parts& parts) {
  const auto add = [&](std::string_view method, std::string_view pattern, Async<void> (*handler)(const Parts&, Call&)) {
    add_route(router, *parts.keys, method, pattern, [&parts, handler](Call& call) { return handler(parts, call); });
  };
  add("GET", "/v1/templates", list_templates);
  add("GET", "/v1/templates/{name}", get_template);
  add("DELETE", "/v1/templates/{name}", remove_template);
  add("GET", "/v1/runtimes", list_runtimes);
  add("GET", "/v1/pool", get_pool);
  add("GET", "/v1/keys", list_keys);
  add("POST", "/v1/keys", create_key);
  add("DELETE", "/v1/keys/{id}", remove_key);
  add("GET", "/v1/info", get_info);
  // Numbers of all tenants: for the operator.
  add("GET", "/metrics", [](const Parts&, Call& call) -> Async<void> {
    GB_CO_TRYV(check_admin(call));
    auto headers = call.headers();
    headers.emplace_back("Content-Type", "text/plain; version=0.0.4");
    co_return co_await call.exchange.response.send(200, std::move(headers), metrics::registry().text());
  });
  add_open_route(router, "/healthz", [] { return std::pair(200, std::string(R"({"status":"ok"})")); });
  add_open_route(router, "/readyz", [&parts] {
    const std::string problem = parts.not_ready ? parts.not_ready() : "";
    if (problem.empty()) return std::pair(200, std::string(R"({"status":"ready"})"));
    return std::pair(503, http::error_body(Error{Code::kUnavailable, problem, {}}));
  });
  add_open_route(router, "/openapi.json", [&parts] { return std::pair(200, parts.openapi_json); });
  add_open_route(router, "/version", [&parts] { return std::pair(200, "{\"version\":\"" + parts.version + "\"}"); });
}

void add_routes(http::Router& router, const Parts& parts) {
  add_sandbox_routes(router, parts);
  add_snapshot_routes(router, parts);
  add_execution_routes(router, parts);
  add_file_routes(router, parts);
  add_code_routes(router, parts);
  add_network_routes(router, parts);
  add_volume_routes(router, parts);
  add_other_routes(router, parts);
}

}  // namespace glovebox::api::v1
