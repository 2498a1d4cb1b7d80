// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshots.h"

#include "api/lizard/call.h"
#include "api/lizard/errors.h"
#include "api/lizard/info.h"
#include "base/text.h"

// Snapshots and forks. Restoring is a create call that names a snapshot.
namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
using sandbox::SnapshotInfo;

constexpr int64_t kMaxForks = 100;
constexpr std::string_view kRegion = "local";

// There are no warm copies: a snapshot that is ready can be restored at once. Clients wait for as
// many ready copies as `poolSize` says, and at least one.
bj::object snapshot_object(const SnapshotInfo& info) {
  const bool is_ready = info.state == "ready";
  return {
      {"id", info.id},
      {"name", utf8_lossy(info.name)},
      {"projectId", kProjectId},
      {"workspaceId", kProjectId},
      {"region", kRegion},
      {"sourceSandboxId", info.source_sandbox},
      {"status", info.state},
      {"poolSize", 0},
      {"readyCount", is_ready ? 1 : 0},
      {"error", info.message.empty() ? bj::value(nullptr) : bj::value(utf8_lossy(info.message))},
      {"cpus", info.limits.cpus},
      {"memoryMb", info.limits.memory_bytes >> 20},
      {"createdAt", unix_millis(info.created_at)},
      {"scope", "project"},
      {"sourceVolume", false},
      {"createdBy", nullptr}};
}

Async<void> create(Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  sandbox::SnapshotSpec spec;
  GB_CO_TRY(spec.name, r.string("name", 0, 128).or_default(""));
  for (const char* past : {"poolSize", "scope"})
    (void)r.any(past);  // of warm copies and sharing, which the vendor has given up
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info,
            co_await call.snapshots.snapshot(call.caller, call.param("id"), std::move(spec)));
  co_return co_await call.reply(snapshot_object(info), 201);
}

// The protocol has no pages, so this walks all of ours.
Async<void> list(Call& call) {
  sandbox::SnapshotFilter filter;
  filter.limit = 1000;
  bj::array found;
  do {
    GB_CO_TRY(const auto page, call.snapshots.list_snapshots(call.caller, filter));
    for (const auto& info : page.items) found.push_back(snapshot_object(info));
    filter.cursor = page.next_cursor;
  } while (!filter.cursor.empty());
  co_return co_await call.reply(std::move(found));
}

Async<void> list_of_project(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  co_return co_await list(call);
}

Async<void> get(Call& call) {
  GB_CO_TRY(const auto info, call.snapshots.get_snapshot(call.caller, call.param("sid")));
  co_return co_await call.reply(snapshot_object(info));
}

Async<void> remove(Call& call) {
  GB_CO_TRYV(co_await call.snapshots.delete_snapshot(call.caller, call.param("sid")));
  co_return co_await call.reply_empty();
}

Result<sandbox::ForkSpec> parse_fork(const bj::value& body) {
  json::Reader r(body);
  sandbox::ForkSpec spec;
  GB_TRY(const auto count, r.integer("count", 1, kMaxForks).or_default(1));
  GB_TRY(const auto timeout, r.integer("timeoutMs", 0, kMaxTimeoutMs).or_default(0));
  GB_TRYV(r.done());
  spec.count = static_cast<size_t>(count);
  if (timeout != 0) spec.lifetime = sandbox::Millis(timeout);  // 0: what is left of the source's
  spec.require = runtime::Kept::kMemoryAndFiles;  // processes are what this protocol promises
  return spec;
}

// All are made or none is, so no entry is ever an error.
Async<void> fork(Call& call) {
  GB_CO_TRY(const auto source, call.live_sandbox());
  if (!source.volumes.empty()) {
    co_return fail(Code::kConflict, "a sandbox with a volume cannot be forked: two would write to it", {{"state", "volume"}});
  }
  GB_CO_TRY(const auto body, co_await call.json_body());
  GB_CO_TRY(auto spec, parse_fork(body));
  GB_CO_TRY(const auto children,
            co_await call.snapshots.fork(call.caller, call.param("id"), std::move(spec)));
  bj::array results;
  for (const auto& child : children) results.push_back(bj::object{{"sandbox", info_object(child)}});
  co_return co_await call.reply(std::move(results), 201);
}

}  // namespace

void add_snapshot_routes(Routes& routes) {
  routes.add("POST", "/api/sandboxes/{id}/snapshot", create);
  routes.add("POST", "/api/sandboxes/{id}/fork", fork);
  routes.add("GET", "/api/projects/{project}/snapshots", list_of_project);
  routes.add("GET", "/api/sandbox-snapshots", list);
  routes.add("GET", "/api/sandbox-snapshots/{sid}", get);
  routes.add("DELETE", "/api/sandbox-snapshots/{sid}", remove);
  // Calls of the past: the client documents that they change nothing.
  routes.add("PATCH", "/api/sandbox-snapshots/{sid}", get);
  routes.add("POST", "/api/sandbox-snapshots/{sid}/pause", get);
  routes.add("POST", "/api/sandbox-snapshots/{sid}/resume", get);
}

}  // namespace glovebox::api::lizard
