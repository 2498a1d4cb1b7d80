// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/lizard/call.h"
#include "api/lizard/errors.h"
#include "api/lizard/info.h"
#include "base/text.h"

// A tenant is shown as one workspace with one project; both have the same id.
namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;

bj::object project_object(const Call& call) {
  return {{"id", kProjectId}, {"slug", kProjectId}, {"name", call.caller.tenant}, {"workspaceId", kProjectId}};
}

Async<void> list_projects(Call& call) { co_return co_await call.reply(bj::array{project_object(call)}); }

Async<void> get_project(Call& call) {
  if (is_project(call.caller, call.param("project"))) co_return co_await call.reply(project_object(call));
  co_return fail(refusal(Code::kNotFound, "PROJECT_NOT_FOUND", "no project '" + call.param("project") + "'"));
}

Async<void> who_am_i(Call& call) {
  co_return co_await call.reply(bj::object{{"id", call.caller.tenant}, {"username", call.caller.tenant}});
}

Async<void> list_workspaces(Call& call) {
  const bool is_admin = call.caller.role == sandbox::Role::kAdmin;
  bj::object workspace{{"id", kProjectId},   {"name", call.caller.tenant}, {"slug", kProjectId}, {"role", is_admin ? "owner" : "member"},
                       {"isPersonal", false}, {"projectCount", 1}};
  co_return co_await call.reply(bj::array{std::move(workspace)});
}

// One host, one region. The client's built-in default name is accepted by create as any other.
Async<void> list_regions(Call& call) {
  bj::object region{{"id", "local"}, {"name", "local"}, {"label", "This server"}, {"available", true}, {"isDefault", true}};
  co_return co_await call.reply(bj::array{std::move(region)});
}

// Keys --------------------------------------------------------------------------------------------------------------------

Result<void> check_admin(const Call& call) {
  if (call.caller.role == sandbox::Role::kAdmin) return {};
  return fail(Code::kForbidden, "managing keys needs a key of role admin");
}

bj::object key_object(const tenant::KeyInfo& key) {
  return {{"id", key.id}, {"name", key.name}, {"keyPreview", key.preview}, {"scopes", bj::array()}, {"createdAt", iso_time(key.created_at)}};
}

std::vector<tenant::KeyInfo> keys_of_tenant(const Call& call) {
  auto keys = call.keys.list();
  std::erase_if(keys, [&](const auto& key) { return key.tenant != call.caller.tenant; });
  return keys;
}

Async<void> list_keys(Call& call) {
  GB_CO_TRYV(check_admin(call));
  bj::array found;
  for (const auto& key : keys_of_tenant(call)) found.push_back(key_object(key));
  co_return co_await call.reply(std::move(found));
}

// A key reaches its tenant's one project, so that is the only scope which can be given.
Result<tenant::NewKey> parse_new_key(const sandbox::Caller& caller, const bj::value& body) {
  json::Reader r(body);
  tenant::NewKey key{.tenant = caller.tenant, .default_runtime = caller.default_runtime};
  GB_TRY(key.name, r.string("name", 1, 64).required());
  GB_TRY(auto scopes, r.objects("scopes", 16).or_default({}));
  for (json::Reader& scope : scopes) {
    GB_TRYV(scope.one_of("type", {"workspace", "project"}).required());
    GB_TRY(const auto id, scope.string("id").required());
    GB_TRYV(scope.done());
    if (!is_project(caller, id)) return fail(scope.error("id", "is not a project or workspace of this key"));
  }
  GB_TRYV(r.done());
  return key;
}

Async<void> create_key(Call& call) {
  GB_CO_TRYV(check_admin(call));
  GB_CO_TRY(const auto body, co_await call.json_body());
  GB_CO_TRY(auto key, parse_new_key(call.caller, body));
  GB_CO_TRY(const auto created, co_await call.keys.create(std::move(key)));
  bj::object reply = key_object(created.info);
  reply["key"] = created.secret;
  co_return co_await call.reply(std::move(reply), 201);
}

Async<void> remove_key(Call& call) {
  GB_CO_TRYV(check_admin(call));
  const std::string id = call.param("key");
  const auto keys = keys_of_tenant(call);
  if (std::ranges::none_of(keys, [&](const auto& key) { return key.id == id; })) co_return fail(Code::kNotFound, "no key '" + id + "'");
  GB_CO_TRYV(co_await call.keys.remove(id));
  co_return co_await call.reply_empty();
}

}  // namespace

void add_account_routes(Routes& routes) {
  routes.add("GET", "/api/projects", list_projects);
  routes.add("GET", "/api/projects/{project}", get_project);
  routes.add("GET", "/api/auth/me", who_am_i);
  routes.add("GET", "/api/workspaces", list_workspaces);
  routes.add("GET", "/api/regions", list_regions);
  routes.add("GET", "/api/account/api-keys", list_keys);
  routes.add("POST", "/api/account/api-keys", create_key);
  routes.add("DELETE", "/api/account/api-keys/{key}", remove_key);
}

}  // namespace glovebox::api::lizard
