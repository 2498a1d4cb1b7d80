// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/e2b/control.h"
#include "api/e2b/lifecycle.h"
#include "api/e2b/names.h"
#include "api/e2b/network.h"
#include "api/e2b/views.h"
#include "http/json.h"

// Create, inspect, end.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;

constexpr int64_t kMaxUnixTime = 1LL << 40;

bool is_empty(const bj::value* value) {
  if (value == nullptr || value->is_null()) return true;
  if (const auto* object = value->if_object()) return object->empty();
  if (const auto* array = value->if_array()) return array->empty();
  return false;
}

// What the protocol can ask for and this server cannot give is refused, never accepted and dropped.
Result<void> refuse_what_is_missing(json::Reader& r) {
  constexpr std::pair<const char*, const char*> kMissing[] = {
      {"mcp", "the MCP gateway"}, {"volumeMounts", "volumes"}, {"iam", "workload identities"}, {"secrets", "secrets"}};
  for (const auto& [field, feature] : kMissing) {
    if (!is_empty(r.any(field))) return fail(Code::kUnsupported, "this server does not have " + std::string(feature));
  }
  return {};
}

Result<void> read_lifecycle(json::Reader& r, sandbox::CreateSpec& spec) {
  GB_TRY(const bool auto_pause, r.boolean("autoPause").or_default(false));
  GB_TRY(const bool keeps_memory, r.boolean("autoPauseMemory").or_default(true));
  bool auto_resume = false;
  if (const bj::value* resume = r.any("autoResume"); resume != nullptr && !resume->is_null()) {
    json::Reader inner(*resume, "autoResume");
    GB_TRY(auto_resume, inner.boolean("enabled").or_default(false));
  }
  if (!keeps_memory && (!auto_pause || auto_resume)) {
    return fail(Code::kInvalidArgument, "autoPauseMemory: false needs autoPause and excludes autoResume", {{"field", "autoPauseMemory"}});
  }
  if (!keeps_memory) return fail(Code::kUnsupported, "this server does not have a pause that drops the memory");
  if (auto_pause) spec.on_timeout = sandbox::OnTimeout::kPause;
  if (auto_resume) spec.attributes[kResumeAttribute] = "on";
  return {};
}

struct CreateRequest {
  sandbox::CreateSpec spec;
  bool may_get_less = false;  // of the network: "the internet" is what older clients always ask for
};

Result<void> read_network(json::Reader& r, CreateRequest& request) {
  GB_TRY(const auto internet, r.boolean("allow_internet_access").optional());
  const bj::value* network = r.any("network");
  GB_TRY(auto policy, network_policy(internet, network));
  if (policy) {
    const bool is_plain = policy->egress == policy::Egress::kOpen && policy->deny.empty();
    request.may_get_less = internet == true && is_plain;
    request.spec.network = std::make_shared<policy::NetworkPolicy>(std::move(*policy));
  }
  bool is_public = true;
  if (network != nullptr && network->is_object()) {
    json::Reader inner(*network, "network");
    GB_TRY(is_public, inner.boolean("allowPublicTraffic").or_default(true));
  }
  request.spec.attributes[kTrafficAttribute] = is_public ? "public" : "private";
  return {};
}

Result<CreateRequest> parse_create(const bj::value& body, int64_t default_seconds) {
  json::Reader r(body);
  CreateRequest request;
  sandbox::CreateSpec& spec = request.spec;
  GB_TRYV(refuse_what_is_missing(r));
  GB_TRY(const auto reference, r.string("templateID", 1, 200).required());
  spec.template_name = template_name(reference);
  spec.attributes = {{kDialectAttribute, "on"}, {kTemplateAttribute, reference}};
  GB_TRY(const auto timeout, r.integer("timeout", 1, kMaxSeconds).or_default(default_seconds));
  spec.lifetime = seconds(timeout);
  spec.attributes[kTimeoutAttribute] = std::to_string(timeout);
  GB_TRYV(read_lifecycle(r, spec));
  GB_TRY(spec.metadata, r.string_map("metadata").or_default({}));
  GB_TRY(spec.env, r.string_map("envVars").or_default({}));
  GB_TRYV(read_network(r, request));
  return request;
}

// Older clients ask for the internet with every call, so that cannot be told from a choice: where the operator gives less, or the
// host has no network to give, the sandbox gets what the operator gives to everybody.
Async<sandbox::SandboxService::Created> create_within(ControlCall& call, CreateRequest request) {
  sandbox::CreateSpec plain = request.spec;
  plain.network = nullptr;
  auto created = co_await create_from(call.parts, call.caller, std::move(request.spec));
  if (created || !request.may_get_less) co_return created;
  const Code code = created.error().code;
  if (code != Code::kForbidden && code != Code::kUnsupported && code != Code::kUnavailable) co_return created;
  co_return co_await create_from(call.parts, call.caller, std::move(plain));
}

Async<void> create(ControlCall& call, int64_t default_seconds) {
  GB_CO_TRY(const auto body, co_await call.json_body());
  GB_CO_TRY(auto request, parse_create(body, default_seconds));
  if (const auto key = call.request().header("Idempotency-Key"); key && !key->empty() && key->size() <= 255) {
    request.spec.idempotency_key = *key;
    request.spec.request = json::to_text(body);
  }
  const bool repeatable = !request.spec.idempotency_key.empty();
  GB_CO_TRY(const auto created, co_await create_within(call, std::move(request)));
  Result<void> sent = fail(Code::kCancelled, "the client went away while its sandbox started");
  if (!call.exchange.client_gone()) sent = co_await call.reply(sandbox_object(created.info, call.parts), 201);
  // Nobody knows its id: it would only run out its lifetime.
  if (!sent && !repeatable) (void)co_await call.parts.service.kill(call.caller, created.info.id);
  co_return sent;
}

Async<void> get(ControlCall& call) {
  GB_CO_TRY(const auto info, call.live_sandbox());
  co_return co_await call.reply(detail_object(info, call.parts));
}

Async<void> kill(ControlCall& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto killed, co_await call.parts.service.kill(call.caller, call.id()));
  if (killed.already_ended) co_return fail(Code::kSandboxNotFound, "sandbox '" + call.param("id") + "' was not found");
  co_return co_await call.reply_empty();
}

}  // namespace

Async<sandbox::SandboxService::Created> create_from(const Parts& parts, const sandbox::Caller& caller, sandbox::CreateSpec spec) {
  const auto start_from = [&](const sandbox::SnapshotInfo& snapshot) {
    sandbox::CreateSpec restored = spec;
    restored.snapshot = snapshot.id;
    return parts.service.create(caller, std::move(restored));
  };
  if (const auto by_id = parts.snapshots.get_snapshot(caller, spec.template_name)) co_return co_await start_from(*by_id);
  auto created = co_await parts.service.create(caller, spec);
  const bool may_be_snapshot = !created && (created.error().code == Code::kTemplateNotFound || created.error().code == Code::kInvalidArgument);
  if (!may_be_snapshot) co_return created;
  const auto by_name = find_snapshot(parts.snapshots, caller, spec.template_name);
  if (!by_name) co_return created;
  co_return co_await start_from(*by_name);
}

void add_sandbox_routes(ControlRoutes& routes) {
  routes.add("POST", "/v2/sandboxes", [](ControlCall& call) { return create(call, kDefaultSeconds); });
  routes.add("POST", "/sandboxes", [](ControlCall& call) { return create(call, kDefaultSecondsV1); });
  routes.add("GET", "/sandboxes/{id}", get);
  routes.add("DELETE", "/sandboxes/{id}", kill);
}

void add_network_routes(ControlRoutes& routes) {
  routes.add("PUT", "/sandboxes/{id}/network", [](ControlCall& call) -> Async<void> {
    GB_CO_TRYV(call.live_sandbox());
    GB_CO_TRY(const auto body, co_await call.json_body());
    json::Reader r(body);
    GB_CO_TRY(const auto internet, r.boolean("allow_internet_access").optional());
    GB_CO_TRY(auto policy, network_policy(internet, &body));
    sandbox::NetworkPolicyPtr wanted = call.parts.service.default_network();
    if (policy || !wanted) wanted = std::make_shared<policy::NetworkPolicy>(policy.value_or(policy::NetworkPolicy()));
    GB_CO_TRYV(co_await call.parts.service.set_network(call.caller, call.id(), std::move(wanted)));
    co_return co_await call.reply_empty();
  });
}

void add_metrics_routes(ControlRoutes& routes) {
  routes.add("GET", "/sandboxes/{id}/metrics", [](ControlCall& call) -> Async<void> {
    GB_CO_TRYV(call.live_sandbox());
    GB_CO_TRY(const auto start, query_int(call.request(), "start", 0, kMaxUnixTime, 0));
    GB_CO_TRY(const auto end, query_int(call.request(), "end", 0, kMaxUnixTime, kMaxUnixTime));
    GB_CO_TRY(const auto sample, co_await sample_usage(call.parts.service, call.caller, call.id()));
    // No history is kept: the one point there is, is now.
    const int64_t now = unix_millis(std::chrono::system_clock::now()) / 1000;
    bj::array points;
    if (start <= now && now <= end + 1) points.push_back(metric_object(sample));
    co_return co_await call.reply(std::move(points));
  });
}

}  // namespace glovebox::api::e2b
