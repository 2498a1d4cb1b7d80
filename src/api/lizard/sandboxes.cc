// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"
#include "api/lizard/errors.h"
#include "api/lizard/info.h"
#include "api/lizard/network.h"

namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
constexpr size_t kMaxAllowedHosts = 50;
constexpr std::string_view kDefaultSize = "medium";
constexpr const char* kVolumePath = "/workspace";
constexpr const char* kDefaultUser = "root";  // as scripts written for the vendor's service expect

struct CreateRequest {
  sandbox::CreateSpec spec;
  std::optional<std::string> size;
};

// What the protocol can ask for and this server cannot give is refused, never accepted and dropped.
Result<void> refuse_what_is_missing(json::Reader& r) {
  GB_TRY(const auto environment, r.string("environment").optional());
  if (environment) return fail(refusal(Code::kInvalidArgument, "ENVIRONMENT_NOT_FOUND", "no environment '" + *environment + "'"));
  return {};
}

Result<void> read_network(json::Reader& r, const sandbox::NetworkPolicyPtr& usual, sandbox::CreateSpec& spec) {
  NetworkRequest request;
  GB_TRY(request.internet, r.boolean("internetAccess").optional());
  GB_TRY(request.hosts, r.strings("allowedHosts", kMaxAllowedHosts).or_default({}));
  if (request.is_closed()) spec.attributes[kInternetAttribute] = "off";
  GB_TRY(spec.network, policy_for(request, usual));
  return {};
}

// `usual`: what a sandbox may reach when the call says nothing.
Result<CreateRequest> parse_create(const sandbox::Caller& caller, const sandbox::NetworkPolicyPtr& usual, const bj::value& body) {
  json::Reader r(body);
  CreateRequest request;
  sandbox::CreateSpec& spec = request.spec;
  GB_TRYV(refuse_what_is_missing(r));
  GB_TRYV(read_network(r, usual, spec));
  GB_TRY(const auto project, r.string("projectId").optional());
  if (project) GB_TRYV(check_project(caller, *project));
  for (const char* field : {"volumeName", "volumeId"}) {
    GB_TRY(const auto volume, r.string(field, 1, 64).optional());
    if (volume) spec.volumes = {{*volume, kVolumePath, false}};
  }
  GB_TRY(spec.snapshot, r.string("snapshotId", 1, 64).or_default(""));
  GB_TRY(spec.template_name, r.string("template", 1).or_default("base"));
  GB_TRY(const auto timeout, r.integer("timeoutMs", 0, kMaxTimeoutMs).or_default(0));
  spec.lifetime = sandbox::Millis(timeout);
  GB_TRY(request.size, r.string("size").optional());
  GB_TRY(const auto region, r.string("region", 0, 64).optional());
  if (region) spec.attributes[kRegionAttribute] = *region;
  GB_TRY(spec.env, r.string_map("envs").or_default({}));
  GB_TRY(spec.metadata, r.string_map("metadata").or_default({}));
  GB_TRYV(r.string("lizardToken").optional());  // for the vendor's command line only
  GB_TRYV(r.done());
  spec.user = kDefaultUser;
  return request;
}

bool is_over_a_limit(const Error& error) {
  const auto field = error.details.find("field");
  return error.code == Code::kInvalidArgument && field != error.details.end() && field->second.starts_with("limits");
}

// More network than the operator gives to anybody. 403 would look like a bad key.
Error in_protocols_words(Error error) {
  const auto rule = error.details.find("rule");
  if (error.code != Code::kForbidden || rule == error.details.end() || !rule->second.starts_with("operator.")) return error;
  return refusal(Code::kInvalidArgument, "NETWORK_NOT_OFFERED", std::move(error.message));
}

Async<sandbox::SandboxInfo> create_sized(Call& call, sandbox::CreateSpec spec, const Size& size) {
  spec.cpus = size.cpus;
  spec.memory_bytes = size.memory_bytes;
  if (!size.name.empty()) spec.attributes[kSizeAttribute] = size.name;
  auto created = co_await call.service.create(call.caller, std::move(spec));
  if (!created) co_return fail(in_protocols_words(std::move(created).error()));
  co_return std::move(created->info);
}

// At the size of its source, unless one is named.
Async<sandbox::SandboxInfo> restore(Call& call, CreateRequest request) {
  GB_CO_TRY(const auto snapshot, call.snapshots.get_snapshot(call.caller, request.spec.snapshot));
  const auto& limits = snapshot.limits;
  const Size size{size_name(limits.cpus, limits.memory_bytes), limits.cpus, limits.memory_bytes};
  co_return co_await create_sized(call, std::move(request.spec), size);
}

// A named size is given exactly or refused. Without a name: the vendor's default, or the next smaller one the operator allows.
Async<sandbox::SandboxInfo> create_sandbox(Call& call, CreateRequest request) {
  if (!request.spec.snapshot.empty() && !request.size) co_return co_await restore(call, std::move(request));
  const Size* size = find_size(request.size.value_or(std::string(kDefaultSize)));
  if (size == nullptr) {
    co_return fail(refusal(Code::kInvalidArgument, "SANDBOX_SIZE_NOT_ALLOWED", "no size '" + *request.size + "'"));
  }
  for (;; --size) {
    auto created = co_await create_sized(call, request.spec, *size);
    if (created || !is_over_a_limit(created.error())) co_return created;
    if (request.size || size == sizes().data()) {
      co_return fail(refusal(Code::kInvalidArgument, "SANDBOX_SIZE_NOT_ALLOWED",
                             "size '" + std::string(size->name) + "': " + created.error().message));
    }
  }
}

Async<void> create(Call& call) {
  GB_CO_TRY(const auto body, co_await call.json_body());
  GB_CO_TRY(auto request, parse_create(call.caller, call.service.default_network(), body));
  GB_CO_TRY(const auto info, co_await create_sandbox(call, std::move(request)));
  co_return co_await call.reply(info_object(info), 201);
}

Async<void> get(Call& call) {
  GB_CO_TRY(const auto info, call.live_sandbox());
  co_return co_await call.reply(info_object(info));
}

Async<void> kill(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto killed, co_await call.service.kill(call.caller, call.param("id")));
  if (killed.already_ended) co_return fail(Code::kSandboxNotFound, "sandbox " + killed.info.id + " has ended");
  co_return co_await call.reply_empty();
}

Async<void> pause(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto info, co_await call.service.pause(call.caller, call.param("id")));
  co_return co_await call.reply(info_object(info), 202);
}

Async<void> resume(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto info, co_await call.service.resume(call.caller, call.param("id")));
  co_return co_await call.reply(info_object(info), 202);
}

Async<void> set_timeout(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto timeout, r.integer("timeoutMs", 1000, kMaxTimeoutMs).required());
  GB_CO_TRYV(r.done());
  sandbox::Update update;
  update.lifetime = sandbox::Millis(timeout);
  GB_CO_TRYV(co_await call.service.update(call.caller, call.param("id"), update));
  co_return co_await call.reply_empty();
}

// The protocol has no pages, so this walks all of ours.
Async<void> list(Call& call) {
  sandbox::ListFilter filter{.states = {sandbox::State::kReady, sandbox::State::kPaused}, .limit = 1000};
  bj::array found;
  do {
    GB_CO_TRY(auto page, call.service.list(call.caller, filter));
    for (const auto& info : page.items) found.push_back(info_object(info));
    filter.cursor = page.next_cursor;
  } while (!filter.cursor.empty());
  co_return co_await call.reply(std::move(found));
}

Async<void> list_of_project(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  co_return co_await list(call);
}

}  // namespace

void add_sandbox_routes(Routes& routes) {
  routes.add("POST", "/api/sandboxes", create);
  routes.add("GET", "/api/sandboxes", list);
  routes.add("GET", "/api/projects/{project}/sandboxes", list_of_project);
  routes.add("GET", "/api/sandboxes/{id}", get);
  routes.add("DELETE", "/api/sandboxes/{id}", kill);
  routes.add("POST", "/api/sandboxes/{id}/pause", pause);
  routes.add("POST", "/api/sandboxes/{id}/resume", resume);
  routes.add("POST", "/api/sandboxes/{id}/timeout", set_timeout);
}

}  // namespace glovebox::api::lizard
