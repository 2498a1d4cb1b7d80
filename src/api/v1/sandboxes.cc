// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"
#include "policy/egress.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;
using sandbox::Millis;

Async<bj::value> read_json(Call& call, bool may_be_empty) {
  GB_CO_TRY(const std::string text, co_await call.exchange.body.read_all(kMaxJsonBody));
  if (text.empty() && may_be_empty) co_return bj::value(bj::object());
  co_return json::parse_object(text);
}

Result<std::optional<std::string>> idempotency_key(const http::Request& request) {
  const auto key = request.header("Idempotency-Key");
  if (!key) return std::nullopt;
  if (key->empty() || key->size() > 255) {
    return fail(Code::kInvalidArgument, "Idempotency-Key: must have 1 to 255 characters", {{"field", "Idempotency-Key"}});
  }
  return std::string(*key);
}

Result<size_t> query_limit(const http::Request& request) {
  GB_TRY(const int64_t limit, query_int(request, "limit", 1, 1000, 100));
  return static_cast<size_t>(limit);
}

Result<sandbox::NetworkPolicyPtr> read_network(json::Reader& reader) {
  const bj::value* network = reader.any("network");
  if (network == nullptr || network->is_null()) return nullptr;
  GB_TRY(auto policy, policy::parse_network_policy(*network));
  return std::make_shared<policy::NetworkPolicy>(std::move(policy));
}

namespace {

constexpr size_t kMaxVolumes = 16;

Result<void> read_limits(json::Reader& root, sandbox::CreateSpec* spec) {
  GB_TRY(auto limits, root.object("limits"));
  const auto mebibytes = [](std::optional<int64_t> mb) {
    return mb ? std::optional<uint64_t>(static_cast<uint64_t>(*mb) << 20) : std::nullopt;
  };
  constexpr int64_t kMaxMb = 1LL << 40;  // the operator's caps decide below this
  GB_TRY(spec->cpus, limits.number("cpus", 0.05, 4096).optional());
  GB_TRY(const auto memory, limits.integer("memory_mb", 1, kMaxMb).optional());
  GB_TRY(const auto disk, limits.integer("disk_mb", 1, kMaxMb).optional());
  GB_TRY(const auto processes, limits.integer("processes", 1, kMaxMb).optional());
  GB_TRY(const auto files, limits.integer("open_files", 1, kMaxMb).optional());
  GB_TRYV(limits.done());
  spec->memory_bytes = mebibytes(memory);
  spec->disk_bytes = mebibytes(disk);
  if (processes) spec->processes = static_cast<uint64_t>(*processes);
  if (files) spec->open_files = static_cast<uint64_t>(*files);
  return {};
}

// A snapshot stands in for a template.
Result<void> read_origin(json::Reader& r, sandbox::CreateSpec* spec) {
  GB_TRY(spec->snapshot, r.string("snapshot", 1, 64).or_default(""));
  if (!spec->snapshot.empty() && r.has("template")) return fail(r.error("template", "cannot be chosen together with a snapshot"));
  GB_TRY(spec->template_name, r.string("template", 1, 200).or_default("base"));
  return {};
}

Result<void> read_volumes(json::Reader& r, sandbox::CreateSpec* spec) {
  GB_TRY(auto volumes, r.objects("volumes", kMaxVolumes).or_default({}));
  for (json::Reader& item : volumes) {
    sandbox::VolumeMount mount;
    GB_TRY(mount.volume, item.string("volume", 1, 64).required());
    GB_TRY(mount.path, item.string("path", 1, 4095).required());
    GB_TRY(mount.read_only, item.boolean("read_only").or_default(false));
    GB_TRYV(item.done());
    spec->volumes.push_back(std::move(mount));
  }
  return {};
}

Result<sandbox::CreateSpec> read_create(const bj::value& body) {
  json::Reader r(body);
  sandbox::CreateSpec spec;
  GB_TRYV(read_origin(r, &spec));
  GB_TRY(const auto tier, r.one_of("runtime", {"auto", "microvm", "gvisor", "container"}).or_default("auto"));
  spec.tier = runtime::tier_from_name(tier);
  GB_TRYV(read_limits(r, &spec));
  GB_TRY(spec.env, r.string_map("env", 1000).or_default({}));
  GB_TRY(spec.secrets, r.string_map("secrets", 1000).or_default({}));
  GB_TRY(spec.metadata, r.string_map("metadata", 64).or_default({}));
  GB_TRY(spec.user, r.string("user", 1, 64).or_default(""));
  GB_TRY(spec.workdir, r.string("workdir", 1, 4095).or_default(""));
  GB_TRY(const auto lifetime, r.integer("lifetime_ms", 0, kMaxTimeMs).optional());
  if (lifetime) spec.lifetime = Millis(*lifetime);
  GB_TRY(const auto idle, r.integer("idle_timeout_ms", 0, kMaxTimeMs).or_default(0));
  spec.idle_timeout = Millis(idle);
  GB_TRY(const auto action, r.one_of("on_timeout", {"kill", "pause", "hibernate"}).or_default("kill"));
  spec.on_timeout = *sandbox::on_timeout_from_name(action);
  GB_TRY(spec.fresh, r.boolean("fresh").or_default(false));
  GB_TRY(spec.network, read_network(r));
  GB_TRYV(read_volumes(r, &spec));
  GB_TRYV(r.done());
  return spec;
}

Async<void> create(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  GB_CO_TRY(auto spec, read_create(body));
  GB_CO_TRY(const auto key, idempotency_key(call.request()));
  if (key) {
    spec.idempotency_key = *key;
    spec.request = json::to_text(body);
  }
  const bool repeatable = !spec.idempotency_key.empty();
  GB_CO_TRY(const auto created, co_await parts.service->create(call.caller, std::move(spec)));
  const auto& info = created.info;
  auto headers = call.headers();
  if (created.replayed) headers.emplace_back("Idempotency-Replayed", "true");
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Location", "/v1/sandboxes/" + info.id);
  Result<void> sent = fail(Code::kCancelled, "the client went away while its sandbox started");
  if (!call.exchange.client_gone()) sent = co_await call.exchange.response.send(201, std::move(headers), json::to_text(view(info)));
  // Nobody knows its id: it would only run out its lifetime. With an idempotency key the caller can ask again.
  if (!sent && !repeatable) (void)co_await parts.service->kill(call.caller, info.id);
  co_return sent;
}

Result<sandbox::ListFilter> read_filter(const http::Request& request) {
  GB_TRYV(check_query(request, {"state*", "limit", "cursor", "metadata."}));
  sandbox::ListFilter filter;
  GB_TRY(filter.limit, query_limit(request));
  filter.cursor = request.query_value("cursor").value_or("");
  constexpr std::string_view kMetadata = "metadata.";
  for (const auto& [name, value] : request.query) {
    if (name.starts_with(kMetadata)) filter.metadata[name.substr(kMetadata.size())] = value;
    if (name != "state") continue;
    const auto state = sandbox::state_from_name(value);
    if (!state) return fail(Code::kInvalidArgument, "state: must be creating, ready, paused, ending or ended", {{"field", "state"}});
    filter.states.push_back(*state);
  }
  return filter;
}

Async<void> list(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto filter, read_filter(call.request()));
  GB_CO_TRY(const auto page, parts.service->list(call.caller, filter));
  bj::array items;
  for (const auto& info : page.items) items.push_back(view(info));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"sandboxes", std::move(items)}, {"next_cursor", page_cursor(page.next_cursor)}}));
}

Async<void> update(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  sandbox::Update update;
  GB_CO_TRY(const auto lifetime, r.integer("lifetime_ms", 0, kMaxTimeMs).optional());
  GB_CO_TRY(const auto idle, r.integer("idle_timeout_ms", 0, kMaxTimeMs).optional());
  GB_CO_TRY(update.metadata, r.string_map("metadata", 64).optional());
  GB_CO_TRYV(r.done());
  if (lifetime) update.lifetime = Millis(*lifetime);
  if (idle) update.idle_timeout = Millis(*idle);
  GB_CO_TRY(const auto info, co_await parts.service->update(call.caller, call.param("id"), std::move(update)));
  co_return co_await call.send_json(200, json::to_text(view(info)));
}

// `change`: pause or resume.
Async<void> change_state(const Parts& parts, Call& call,
                         Async<sandbox::SandboxInfo> (sandbox::SandboxService::*change)(const sandbox::Caller&, const std::string&)) {
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  json::Reader r(body);
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info, co_await (parts.service->*change)(call.caller, call.param("id")));
  co_return co_await call.send_json(200, json::to_text(view(info)));
}

Async<void> stats(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto u, co_await parts.service->usage(call.caller, call.param("id")));
  const bj::object out{{"cpu_ms", u.cpu_us / 1000},         {"memory_bytes", u.memory_bytes}, {"memory_peak_bytes", u.memory_peak_bytes},
                       {"disk_bytes", u.disk_bytes},        {"processes", u.processes},       {"oom_kills", u.oom_kills}};
  co_return co_await call.send_json(200, json::to_text(out));
}

}  // namespace

void add_sandbox_routes(http::Router& router, const Parts& parts) {
  const auto& keys = *parts.keys;
  add_route(router, keys, "POST", "/v1/sandboxes", [&parts](Call& call) { return create(parts, call); });
  add_route(router, keys, "GET", "/v1/sandboxes", [&parts](Call& call) { return list(parts, call); });
  add_route(router, keys, "GET", "/v1/sandboxes/{id}", [&parts](Call& call) -> Async<void> {
    GB_CO_TRY(const auto info, parts.service->get(call.caller, call.param("id")));
    co_return co_await call.send_json(200, json::to_text(view(info)));
  });
  add_route(router, keys, "PATCH", "/v1/sandboxes/{id}", [&parts](Call& call) { return update(parts, call); });
  add_route(router, keys, "DELETE", "/v1/sandboxes/{id}", [&parts](Call& call) -> Async<void> {
    GB_CO_TRY(const auto killed, co_await parts.service->kill(call.caller, call.param("id")));
    auto out = view(killed.info);
    out["already_ended"] = killed.already_ended;
    co_return co_await call.send_json(200, json::to_text(out));
  });
  add_route(router, keys, "POST", "/v1/sandboxes/{id}/pause",
            [&parts](Call& call) { return change_state(parts, call, &sandbox::SandboxService::pause); });
  add_route(router, keys, "POST", "/v1/sandboxes/{id}/resume",
            [&parts](Call& call) { return change_state(parts, call, &sandbox::SandboxService::resume); });
  add_route(router, keys, "GET", "/v1/sandboxes/{id}/stats", [&parts](Call& call) { return stats(parts, call); });
}

}  // namespace glovebox::api::v1
