// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshots.h"

#include "api/e2b/control.h"
#include "api/e2b/lifecycle.h"
#include "api/e2b/names.h"
#include "api/e2b/template_builds.h"
#include "api/e2b/views.h"
#include "base/text.h"
#include "http/json.h"

// Snapshots, which this protocol counts among the templates, and copies of running sandboxes.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::SandboxInfo;
using sandbox::SnapshotInfo;

constexpr int64_t kMaxCopies = 100;

// "<id>:default"; a tag is what tells clients that it is one of a template's builds.
bj::object snapshot_object(const SnapshotInfo& info) {
  bj::array names;
  if (!info.name.empty() && info.name != info.id) names.emplace_back(utf8_lossy(info.name));
  return {{"snapshotID", info.id + ":default"}, {"names", std::move(names)}};
}

// Without `memory`: what the runtime keeps.
Async<void> create(ControlCall& call) {
  GB_CO_TRY(const auto info, call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  sandbox::SnapshotSpec spec;
  GB_CO_TRY(const auto name, r.string("name", 0, 128).or_default(""));
  GB_CO_TRY(const auto memory, r.boolean("memory").optional());
  if (memory == false) GB_CO_TRYV(check_drops_memory(info));
  if (memory) spec.require = *memory ? runtime::Kept::kMemoryAndFiles : runtime::Kept::kFiles;
  spec.name = template_name(name);
  GB_CO_TRY(const auto made, co_await call.parts.snapshots.snapshot(call.caller, info.id, std::move(spec)));
  co_return co_await call.reply(snapshot_object(made), 201);
}

Async<void> list(ControlCall& call) {
  const http::Request& request = call.request();
  sandbox::SnapshotFilter filter;
  GB_CO_TRY(const auto limit, query_int(request, "limit", 1, 100, 100));
  filter.limit = static_cast<size_t>(limit);
  filter.cursor = request.query_value("nextToken").value_or("");
  filter.source_sandbox = native_id(request.query_value("sandboxID").value_or(""));
  filter.name = template_name(request.query_value("name").value_or(""));
  GB_CO_TRY(const auto page, call.parts.snapshots.list_snapshots(call.caller, filter));
  bj::array items;
  for (const auto& info : page.items) items.push_back(snapshot_object(info));
  http::Headers headers;
  if (!page.next_cursor.empty()) headers.emplace_back("X-Next-Token", page.next_cursor);
  co_return co_await call.reply(std::move(items), 200, std::move(headers));
}

// The newest of the filter's that is meant.
template <class Meant>
std::optional<SnapshotInfo> newest(const sandbox::Snapshots& snapshots, const sandbox::Caller& caller,
                                   sandbox::SnapshotFilter filter, const Meant& is_meant) {
  do {
    auto page = snapshots.list_snapshots(caller, filter);
    if (!page) return std::nullopt;
    for (auto& info : page->items) {
      if (is_meant(info)) return std::move(info);
    }
    filter.cursor = page->next_cursor;
  } while (!filter.cursor.empty());
  return std::nullopt;
}

// Snapshots and what was built from this dialect: the others belong to the operator.
Async<void> remove(ControlCall& call) {
  const auto found = find_snapshot(call.parts.snapshots, call.caller, call.param("template"));
  if (!found)
    co_return fail(Code::kNotFound, "snapshot '" + call.param("template") + "' was not found");
  GB_CO_TRYV(co_await call.parts.snapshots.delete_snapshot(call.caller, found->id));
  // What was built is a template with all its builds.
  const auto built = found->labels.find(kTemplateLabel);
  while (built != found->labels.end()) {
    sandbox::SnapshotFilter filter;
    filter.labels = {{kTemplateLabel, built->second}};
    const auto other = newest(call.parts.snapshots, call.caller, filter, [](const SnapshotInfo&) { return true; });
    if (!other) break;
    GB_CO_TRYV(co_await call.parts.snapshots.delete_snapshot(call.caller, other->id));
  }
  co_return co_await call.reply_empty();
}

// Processes are the point of a copy: a runtime that could only copy files refuses.
Async<std::vector<SandboxInfo>> copies(ControlCall& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  sandbox::ForkSpec spec;
  GB_CO_TRY(const auto count, r.integer("count", 1, kMaxCopies).or_default(1));
  GB_CO_TRY(const auto timeout, r.integer("timeout", 1, kMaxSeconds).or_default(kDefaultSeconds));
  spec.count = static_cast<size_t>(count);
  spec.lifetime = seconds(timeout);
  spec.require = runtime::Kept::kMemoryAndFiles;
  co_return co_await call.parts.snapshots.fork(call.caller, call.id(), std::move(spec));
}

// All are made or none is, so no entry is ever an error.
Async<void> fork(ControlCall& call) {
  GB_CO_TRY(const auto children, co_await copies(call));
  bj::array results;
  for (const auto& child : children)
    results.push_back(bj::object{{"sandbox", sandbox_object(child, call.parts)}});
  co_return co_await call.reply(std::move(results), 201);
}

Async<void> clone(ControlCall& call) {
  GB_CO_TRY(const auto children, co_await copies(call));
  bj::array sandboxes;
  for (const auto& child : children) sandboxes.push_back(sandbox_object(child, call.parts));
  co_return co_await call.reply(bj::object{{"sandboxes", std::move(sandboxes)}}, 201);
}

// Back to the snapshot it was made from, or reset to last.
Async<void> reset(ControlCall& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const bool resume, r.boolean("resume").or_default(true));
  GB_CO_TRY(const auto timeout, r.integer("timeout", 1, kMaxSeconds).optional());
  if (!resume)
    co_return fail(Code::kUnsupported,
                   "this server does not have a reset that leaves the sandbox paused");
  GB_CO_TRY(auto info, co_await call.parts.snapshots.reset(call.caller, call.id(), ""));
  if (timeout) {
    sandbox::Update update;
    update.lifetime = seconds(*timeout);
    GB_CO_TRY(info, co_await call.parts.service.update(call.caller, info.id, std::move(update)));
  }
  const bj::object shown = sandbox_object(info, call.parts);
  co_return co_await call.reply(bj::object{{"trafficAccessToken", shown.at("trafficAccessToken")}});
}

}  // namespace

std::optional<SnapshotInfo> find_snapshot(const sandbox::Snapshots& snapshots,
                                          const sandbox::Caller& caller,
                                          std::string_view reference) {
  const std::string name = template_name(reference);
  if (auto by_id = snapshots.get_snapshot(caller, name)) return std::move(*by_id);
  const size_t colon = name.find(':');
  const std::string tag = colon == name.npos ? "default" : name.substr(colon + 1);
  const auto has_tag = [&](const SnapshotInfo& info) { return info.labels.contains(kTagLabel + tag); };
  sandbox::SnapshotFilter by_template;
  by_template.labels = {{kTemplateLabel, name.substr(0, colon)}};
  if (auto built = newest(snapshots, caller, by_template, has_tag)) return built;
  sandbox::SnapshotFilter by_name;
  by_name.name = name.substr(0, colon);
  const auto is_meant = [&](const SnapshotInfo& info) {
    return info.labels.contains(kTemplateLabel) ? has_tag(info) : colon == name.npos;
  };
  if (auto named = newest(snapshots, caller, by_name, is_meant); named || colon == name.npos) return named;
  by_name.name = name;
  return newest(snapshots, caller, by_name, [](const SnapshotInfo&) { return true; });
}

void add_snapshot_routes(ControlRoutes& routes) {
  routes.add("POST", "/sandboxes/{id}/snapshots", create);
  routes.add("GET", "/snapshots", list);
  routes.add("DELETE", "/templates/{template}", remove);
  routes.add("POST", "/sandboxes/{id}/fork", fork);
  routes.add("POST", "/sandboxes/{id}/clone", clone);
  routes.add("POST", "/sandboxes/{id}/reset", reset);
}

}  // namespace glovebox::api::e2b
