// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "metrics/metrics.h"
#include "sandbox/image_files.h"
#include "sandbox/snapshots_impl.h"

namespace glovebox::sandbox {
namespace {

using runtime::Kept;

constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxLabels = 64, kMaxLabelBytes = 16 * 1024;
constexpr size_t kMaxChildren = 100;
constexpr Millis kEndWait{60'000};
constexpr Millis kLongestSnapshot{600'000};

tl::unexpected<Error> bad_field(const std::string& field, const std::string& what) {
  return fail(Code::kInvalidArgument, field + ": " + what, {{"field", field}});
}

Result<void> check_name(const std::string& name) {
  const bool is_printable = std::all_of(name.begin(), name.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7F; });
  if (name.size() <= kMaxNameBytes && is_printable && is_utf8(name)) return {};
  return bad_field("name", "must be at most 128 bytes of text without control characters");
}

Result<void> check_labels(const StringMap& labels) {
  size_t bytes = 0;
  for (const auto& [key, value] : labels) {
    bytes += key.size() + value.size();
    if (key.empty()) return bad_field("labels", "holds an empty name");
  }
  if (labels.size() <= kMaxLabels && bytes <= kMaxLabelBytes) return {};
  return bad_field("labels", "has more than 64 entries or 16 KiB");
}

metrics::Labels runtime_label(runtime::Tier tier) { return {{"runtime", std::string(tier_name(tier))}}; }

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

codec::SnapshotDocument describe(const Sandbox& box, const SnapshotSpec& spec) {
  const SandboxInfo& source = box.info();
  codec::SnapshotDocument d;
  SnapshotInfo& i = d.info;
  i.id = "snap-" + random_name(12);
  i.tenant = source.tenant;
  i.name = spec.name.empty() ? i.id : spec.name;
  i.labels = spec.labels;
  i.tier = source.tier;
  i.source_sandbox = source.id;
  i.parent = source.snapshot_id;
  i.template_name = source.template_name;
  i.template_version = source.template_version;
  i.limits = source.limits;
  i.env = source.env;
  i.user = source.user;
  i.workdir = source.workdir;
  i.created_at = std::chrono::system_clock::now();
  d.rootfs = box.document().rootfs;
  return d;
}

// What a caller did not say is as in the source; what he said must hold what the snapshot holds.
Result<void> take_limits(const SnapshotInfo& snapshot, CreateSpec* spec) {
  constexpr uint64_t kMiB = 1 << 20;
  const runtime::Limits& l = snapshot.limits;
  spec->cpus = spec->cpus.value_or(l.cpus);
  spec->memory_bytes = spec->memory_bytes.value_or(l.memory_bytes);
  spec->disk_bytes = spec->disk_bytes.value_or(l.disk_bytes);
  spec->processes = spec->processes.value_or(l.processes);
  spec->open_files = spec->open_files.value_or(l.open_files);
  const uint64_t memory = std::min(snapshot.min_memory_bytes, l.memory_bytes), disk = std::min(snapshot.min_disk_bytes, l.disk_bytes);
  if (*spec->memory_bytes < memory) return bad_field("limits.memory_mb", "the snapshot needs at least " + std::to_string(memory / kMiB));
  if (*spec->disk_bytes < disk) return bad_field("limits.disk_mb", "the snapshot needs at least " + std::to_string(disk / kMiB));
  return {};
}

}  // namespace

SnapshotsImpl::SnapshotsImpl(Host host) : host_(std::move(host)), catalog_(host_.config->data_dir, host_.store, host_.pool) {}

// ---- Snapshots ----

Result<void> SnapshotsImpl::check_quota(const std::string& tenant, uint64_t more) const {
  const uint64_t limit = host_.config->max_snapshot_bytes, used = catalog_.bytes_of(tenant);
  if (limit == 0 || used + more <= limit) return {};
  return fail(Code::kCapacity, "snapshots hold " + human_bytes(used) + ", and no more than " + human_bytes(limit) + " are allowed: delete some",
              {{"limit", "snapshot_bytes"}, {"size", std::to_string(limit)}, {"use", std::to_string(used)}});
}

Async<SnapshotInfo> SnapshotsImpl::snapshot(const Caller& caller, const std::string& sandbox, SnapshotSpec spec) {
  const auto began = Clock::now();
  GB_CO_TRY(const Box box, host_.find(caller, sandbox));
  GB_CO_TRYV(check_name(spec.name));
  GB_CO_TRYV(check_labels(spec.labels));
  GB_CO_TRYV(box->check_keeps(spec.require));
  GB_CO_TRYV(box->check_can_be_copied());
  GB_CO_TRYV(check_quota(caller.tenant, 1));
  GB_CO_TRY(const auto entry, co_await catalog_.begin(describe(*box, spec)));
  auto made = co_await make(box, entry);
  const SnapshotInfo& info = entry->document.info;
  if (!made) {
    log::warn("snapshot.failed", {{"sandbox", sandbox}, {"request", caller.request_id}, {"message", made.error().message}});
    co_await catalog_.give_up(entry);
    co_return fail(made.error());
  }
  metrics::registry().histogram("glovebox_snapshot_seconds", "Snapshot call to the snapshot on disk.", runtime_label(info.tier)).observe(seconds_since(began));
  metrics::registry()
      .histogram("glovebox_snapshot_stall_seconds", "How long a sandbox stood still for its snapshot.", runtime_label(info.tier))
      .observe(static_cast<double>(info.stall.count()) / 1e6);
  log::info("snapshot.made", {{"snapshot", info.id}, {"sandbox", sandbox}, {"request", caller.request_id}, {"tenant", info.tenant},
                              {"kept", kept_name(info.kept)}, {"bytes", info.bytes}, {"stall_us", info.stall.count()}});
  co_return entry->info();
}

Async<void> SnapshotsImpl::make(Box box, SnapshotCatalog::EntryPtr entry) {
  SnapshotInfo& info = entry->document.info;
  const std::string draft = catalog_.draft_directory(info.id);
  GB_CO_TRYV(co_await run_blocking(*host_.pool, [&] { return make_image_directory(draft); }));
  co_await record_changes(box, draft);
  GB_CO_TRY(auto written, co_await box->write_image(draft, after(kLongestSnapshot)));
  GB_CO_TRY(info.parts, co_await run_blocking(*host_.pool, [&] { return seal_image(draft); }));
  info.bytes = co_await run_blocking(*host_.pool, [&] { return disk_bytes(draft); });
  info.kept = written.content.kept;
  info.needs = std::move(written.content.needs);
  info.min_memory_bytes = written.content.min_memory_bytes;
  info.min_disk_bytes = written.content.min_disk_bytes;
  info.stall = written.content.stall;
  entry->document.executions = std::move(written.executions);
  GB_CO_TRYV(check_quota(info.tenant, 0));
  co_return co_await catalog_.finish(entry);
}

Result<SnapshotInfo> SnapshotsImpl::get_snapshot(const Caller& caller, const std::string& id) const {
  GB_TRY(const auto entry, catalog_.find(caller.tenant, id));
  return entry->info();
}

Result<Page<SnapshotInfo>> SnapshotsImpl::list_snapshots(const Caller& caller, const SnapshotFilter& filter) const {
  return catalog_.list(caller.tenant, filter);
}

Async<SnapshotInfo> SnapshotsImpl::update_snapshot(const Caller& caller, const std::string& id, std::optional<std::string> name,
                                                   std::optional<StringMap> labels) {
  GB_CO_TRY(const auto entry, catalog_.find(caller.tenant, id));
  if (name) GB_CO_TRYV(check_name(*name));
  if (labels) GB_CO_TRYV(check_labels(*labels));
  GB_CO_TRYV(co_await catalog_.update(entry, std::move(name), std::move(labels)));
  co_return entry->info();
}

Async<void> SnapshotsImpl::delete_snapshot(const Caller& caller, const std::string& id) {
  GB_CO_TRY(const auto entry, catalog_.find(caller.tenant, id));
  if (host_.is_image(catalog_.directory(id))) co_return fail(Code::kSnapshotInUse, "a sandbox goes on from snapshot " + id);
  co_return co_await catalog_.remove(entry);
}

Async<void> SnapshotsImpl::verify_snapshot(const Caller& caller, const std::string& id) {
  GB_CO_TRY(const auto entry, find_ready(caller.tenant, id));
  const auto hold = SnapshotCatalog::hold(entry);
  co_return co_await run_blocking(*host_.pool, [&] {
    return check_image(catalog_.directory(id), entry->document.info.parts, Reading::kAlways);
  });
}

Result<SnapshotCatalog::EntryPtr> SnapshotsImpl::find_ready(const std::string& tenant, const std::string& id) const {
  GB_TRY(const auto entry, catalog_.find(tenant, id));
  const SnapshotInfo& info = entry->document.info;
  if (info.state == "ready") return entry;
  return fail(Code::kConflict, "snapshot " + id + " is not ready: " + info.state + (info.message.empty() ? "" : " (" + info.message + ")"),
              {{"state", info.state}});
}

Sandbox::Origin SnapshotsImpl::origin_of(SnapshotCatalog::EntryPtr entry) const {
  const SnapshotInfo& info = entry->document.info;
  Sandbox::Origin origin;
  origin.image.directory = catalog_.directory(info.id);
  origin.image.is_own = false;
  origin.image.content.kept = info.kept;
  origin.image.content.parts = info.parts;
  origin.image.content.needs = info.needs;
  origin.executions = entry->document.executions;
  origin.hold = SnapshotCatalog::hold(std::move(entry));
  return origin;
}

// ---- What is made from them ----

Result<SnapshotsImpl::Base> SnapshotsImpl::base_for(const Caller& caller, CreateSpec spec) const {
  GB_TRY(const auto entry, find_ready(caller.tenant, spec.snapshot));
  const SnapshotInfo& info = entry->document.info;
  if (spec.tier && *spec.tier != info.tier) {
    return bad_field("runtime", "the snapshot is of the runtime " + std::string(tier_name(info.tier)) + ", and can be started in no other");
  }
  if (!spec.volumes.empty() && info.kept == Kept::kMemoryAndFiles) {
    return fail(Code::kUnsupported, "volumes: a sandbox that goes on from memory has those of its snapshot, which are none", {{"field", "volumes"}});
  }
  GB_TRYV(take_limits(info, &spec));
  spec.tier = info.tier;
  auto tmpl = host_.templates->find("@" + info.template_version);
  if (!tmpl) {
    return fail(Code::kSnapshotMismatch, "the snapshot needs version " + info.template_version.substr(0, 12) + " of the template " + info.template_name,
                {{"need", "template"}, {"wanted", info.template_version}, {"present", ""}});
  }
  tmpl->name = info.template_name;
  tmpl->config.env = info.env;
  tmpl->config.user = info.user;
  tmpl->config.workdir = info.workdir;
  return Base{std::move(spec), std::move(*tmpl), origin_of(entry)};
}

Result<CreateSpec> SnapshotsImpl::child_spec(const SandboxInfo& parent, const ForkSpec& spec) const {
  CreateSpec child;
  child.template_name = parent.template_name;
  child.tier = parent.tier;
  child.cpus = parent.limits.cpus;
  child.memory_bytes = parent.limits.memory_bytes;
  child.disk_bytes = parent.limits.disk_bytes;
  child.processes = parent.limits.processes;
  child.open_files = parent.limits.open_files;
  child.env = spec.env.value_or(parent.env);
  child.secrets = spec.secrets;
  if (spec.inherit_secrets) child.secrets.insert(parent.secrets.begin(), parent.secrets.end());
  child.metadata = spec.metadata.value_or(parent.metadata);
  child.attributes = parent.attributes;
  child.user = parent.user;
  child.workdir = parent.workdir;
  child.idle_timeout = parent.idle_timeout;
  child.on_timeout = parent.on_timeout;
  child.network = spec.network ? spec.network : parent.network;
  child.lifetime = spec.lifetime;
  if (!child.lifetime && parent.expires_at) {
    const auto left = std::chrono::duration_cast<Millis>(*parent.expires_at - std::chrono::system_clock::now());
    child.lifetime = std::max(left, Millis(1));
  }
  if (!child.lifetime) child.lifetime = parent.lifetime;
  return child;
}

Async<std::vector<SandboxInfo>> SnapshotsImpl::fork(const Caller& caller, const std::string& sandbox, ForkSpec spec) {
  const auto began = Clock::now();
  GB_CO_TRY(const Box parent, host_.find(caller, sandbox));
  if (spec.count < 1 || spec.count > kMaxChildren) co_return bad_field("count", "must be between 1 and 100");
  if (!parent->info().volumes.empty()) co_return fail(Code::kConflict, "a sandbox with volumes is not forked: its children would be without them");
  GB_CO_TRYV(parent->check_keeps(spec.require));
  GB_CO_TRYV(parent->check_can_be_copied());
  GB_CO_TRYV(host_.check_room(spec.count));
  // Nobody's snapshot: removed in the end, and swept when this daemon does not come to it.
  const std::string directory = catalog_.draft_directory("fork-" + random_name(12));
  GB_CO_TRYV(co_await run_blocking(*host_.pool, [&] { return make_image_directory(directory); }));
  const SandboxInfo source = parent->info();  // as it is now: one that is killed meanwhile loses its secrets at once
  auto written = co_await parent->write_image(directory, after(kLongestSnapshot));
  Result<std::vector<SandboxInfo>> children;
  if (written) {
    Sandbox::Origin origin{{directory, false, std::move(written->content)}, std::move(written->executions), {}};
    children = co_await start_children(caller, parent, source, spec, std::move(origin), began);
  } else {
    children = fail(written.error());
  }
  auto removed = co_await run_blocking(*host_.pool, [&] { return remove_image(directory); });
  if (!removed) log::warn("fork.image_not_removed", {{"path", directory}, {"message", removed.error().message}});
  if (!children) {
    log::warn("fork.failed", {{"sandbox", sandbox}, {"request", caller.request_id}, {"message", children.error().message}});
    co_return children;
  }
  metrics::registry().counter("glovebox_forks_total", "Sandboxes made by forking another.", runtime_label(parent->info().tier)).add(spec.count);
  metrics::registry().histogram("glovebox_fork_seconds", "Fork call to the last child's answer.", runtime_label(parent->info().tier)).observe(seconds_since(began));
  log::info("sandbox.forked", {{"sandbox", sandbox}, {"request", caller.request_id}, {"count", spec.count}});
  co_return children;
}

// All have their place before the first one starts.
Async<std::vector<SandboxInfo>> SnapshotsImpl::start_children(const Caller& caller, Box parent, SandboxInfo source, ForkSpec spec,
                                                              Sandbox::Origin origin, Clock::time_point began) {
  GB_CO_TRY(const CreateSpec child, child_spec(source, spec));
  image::Template tmpl;
  tmpl.name = source.template_name;
  tmpl.version = source.template_version;
  tmpl.image_path = parent->document().rootfs.image_path;
  tmpl.image_sha256 = parent->document().rootfs.digest;
  std::vector<codec::SandboxDocument> documents;
  for (size_t i = 0; i < spec.count; ++i) {
    GB_CO_TRY(auto document, host_.plan(caller, child, tmpl, source.tier));
    document.info.started_from = "fork";
    document.info.snapshot_id = source.snapshot_id;
    documents.push_back(std::move(document));
  }
  GB_CO_TRYV(host_.check_room(spec.count));
  std::vector<Box> children;
  for (auto& document : documents) children.push_back(host_.add(std::move(document), origin));
  GB_CO_TRYV(co_await start_all(children, after(host_.config->start_timeout), began));
  std::vector<SandboxInfo> out;
  for (const Box& box : children) out.push_back(box->snapshot_info());
  co_return out;
}

// In parallel, as far as the gate lets them. When one fails, the others end.
Async<void> SnapshotsImpl::start_all(std::vector<Box> children, Deadline deadline, Clock::time_point began) {
  struct State {
    size_t left = 0;
    std::optional<Error> error;
    Notifier changed;
  };
  auto state = std::make_shared<State>();
  state->left = children.size();
  auto start = [](std::shared_ptr<State> s, Async<void> starting) -> Awaitable<void> {
    auto started = co_await std::move(starting);
    if (!started && !s->error) s->error = started.error();
    --s->left;
    s->changed.notify();
  };
  for (const Box& box : children) spawn(host_.executor, "fork.start", start(state, host_.start(box, deadline, began)));
  while (state->left > 0) co_await state->changed.wait();
  if (!state->error) co_return Result<void>();
  for (const Box& box : children) co_await box->end("start_failed", "another child of the fork did not start", after(kEndWait));
  co_return fail(*state->error);
}

Async<SandboxInfo> SnapshotsImpl::reset(const Caller& caller, const std::string& sandbox, const std::string& snapshot) {
  GB_CO_TRY(const Box box, host_.find(caller, sandbox));
  const std::string id = snapshot.empty() ? box->info().snapshot_id : snapshot;
  if (id.empty()) co_return bad_field("snapshot", "the sandbox was started from none: say which one");
  GB_CO_TRY(const auto entry, find_ready(caller.tenant, id));
  const SnapshotInfo& info = entry->document.info;
  const SandboxInfo& now = box->info();
  if (info.tier != now.tier || info.template_version != now.template_version) {
    co_return fail(Code::kSnapshotMismatch, "the snapshot is of another runtime or template than the sandbox",
                   {{"need", info.tier != now.tier ? "runtime" : "template"}});
  }
  if (info.min_memory_bytes > now.limits.memory_bytes || info.min_disk_bytes > now.limits.disk_bytes) {
    co_return fail(Code::kSnapshotMismatch, "the sandbox's limits are smaller than what the snapshot needs", {{"need", "limits"}});
  }
  GB_CO_TRYV(box->check_can_be_copied());
  GB_CO_TRYV(co_await box->reset(origin_of(entry), id));
  metrics::registry().counter("glovebox_resets_total", "Sandboxes that were set back to a snapshot.", runtime_label(now.tier)).add();
  log::info("sandbox.reset", {{"sandbox", sandbox}, {"snapshot", id}, {"request", caller.request_id}});
  co_return box->snapshot_info();
}

Async<SandboxInfo> SnapshotsImpl::hibernate(const Caller& caller, const std::string& sandbox, std::optional<Kept> require) {
  GB_CO_TRY(const Box box, host_.find(caller, sandbox));
  GB_CO_TRYV(co_await box->hibernate("call", false, require));
  co_return box->snapshot_info();
}

}  // namespace glovebox::sandbox
