// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshot_catalog.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/log.h"
#include "metrics/metrics.h"
#include "sandbox/image_files.h"
#include "sandbox/paging.h"
#include "sys/files.h"

namespace glovebox::sandbox {
namespace {

constexpr const char* kKind = "snapshot";
constexpr const char* kBytesGauge = "glovebox_snapshot_bytes";
constexpr const char* kBytesHelp = "Different bytes that snapshots hold.";

}  // namespace

SnapshotInfo SnapshotCatalog::Entry::info() const {
  SnapshotInfo info = document.info;
  info.in_use = users;
  return info;
}

SnapshotCatalog::SnapshotCatalog(std::string data_dir, store::Store* store, BlockingPool* pool)
    : data_dir_(std::move(data_dir)), store_(store), pool_(pool) {
  metrics::registry().gauge(kBytesGauge, kBytesHelp, [this] {
    std::set<std::string> tenants;
    for (const auto& [id, entry] : entries_) tenants.insert(entry->document.info.tenant);
    double bytes = 0;
    for (const auto& tenant : tenants) bytes += static_cast<double>(bytes_of(tenant));
    return metrics::Registry::Samples{{{}, bytes}};
  });
}

SnapshotCatalog::~SnapshotCatalog() { metrics::registry().gauge(kBytesGauge, kBytesHelp, nullptr); }

Result<void> SnapshotCatalog::load() {
  GB_TRY(const auto rows, store_->load_objects(kKind));
  for (const auto& row : rows) {
    auto document = codec::decode_snapshot(row.document);
    if (!document) {
      log::error("snapshot.record_unreadable", {{"snapshot", row.id}, {"message", document.error().message}});
      continue;
    }
    SnapshotInfo& info = document->info;
    if (info.state == "building") {
      cut_off_.push_back(info.id);
      continue;
    }
    if (info.state == "ready" && !sys::exists(directory(info.id))) {
      info.state = "failed";
      info.message = "its files are gone";
      info.bytes = 0;
      info.parts.clear();
    }
    const std::string id = info.id;
    entries_[id] = std::make_shared<Entry>(Entry{std::move(*document)});
  }
  sweep();
  return {};
}

// What cannot be forgotten now is left to the next daemon.
Awaitable<void> SnapshotCatalog::forget_cut_off() {
  for (const std::string& id : std::exchange(cut_off_, {})) {
    const auto done = co_await store_->delete_object(kKind, id);
    log::warn("snapshot.cut_off", {{"snapshot", id}, {"message", "the daemon ended while it was made"}, {"done", done.has_value()}});
  }
}

void SnapshotCatalog::sweep() const {
  const std::string parent = data_dir_ + "/snapshots";
  for (const auto& name : sys::list_directory(parent)) {
    const auto found = entries_.find(name);
    if (found != entries_.end() && found->second->document.info.state == "ready") continue;
    const auto removed = remove_image(parent + "/" + name);
    log::warn("snapshot.swept", {{"path", parent + "/" + name}, {"done", removed.has_value()}});
  }
}

Result<SnapshotCatalog::EntryPtr> SnapshotCatalog::find(const std::string& tenant, const std::string& id) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second->is_leaving || found->second->document.info.tenant != tenant) {
    return fail(Code::kSnapshotNotFound, "no snapshot '" + utf8_lossy(id.substr(0, 64)) + "'");
  }
  return found->second;
}

Result<Page<SnapshotInfo>> SnapshotCatalog::list(const std::string& tenant, const SnapshotFilter& filter) const {
  std::vector<SnapshotInfo> all;
  for (const auto& [id, entry] : entries_) {
    const SnapshotInfo& i = entry->document.info;
    if (entry->is_leaving || i.tenant != tenant || !all_match(i.labels, filter.labels)) continue;
    if (!filter.name.empty() && i.name != filter.name) continue;
    if (!filter.source_sandbox.empty() && i.source_sandbox != filter.source_sandbox) continue;
    all.push_back(entry->info());
  }
  return newest_first(std::move(all), filter.limit, filter.cursor);
}

bool SnapshotCatalog::uses_template(const std::string& version) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
    const SnapshotInfo& info = entry.second->document.info;
    return info.template_version == version && info.state != "failed";
  });
}

uint64_t SnapshotCatalog::bytes_of(const std::string& tenant) const {
  std::map<std::string, uint64_t> parts;
  for (const auto& [id, entry] : entries_) {
    const SnapshotInfo& info = entry->document.info;
    if (info.tenant != tenant) continue;
    // Sparse parts take less than their size; what a snapshot takes is known as a whole.
    uint64_t sizes = 0;
    for (const auto& part : info.parts) sizes += part.bytes;
    const double share = sizes == 0 ? 0 : std::min(1.0, static_cast<double>(info.bytes) / static_cast<double>(sizes));
    for (const auto& part : info.parts) parts[part.sha256] = static_cast<uint64_t>(static_cast<double>(part.bytes) * share);
  }
  uint64_t bytes = 0;
  for (const auto& [sum, size] : parts) bytes += size;
  return bytes;
}

Async<void> SnapshotCatalog::save(const codec::SnapshotDocument& document) {
  const SnapshotInfo& i = document.info;
  return store_->put_object({kKind, i.id, i.tenant, unix_millis(i.created_at), codec::encode(document)});
}

Async<SnapshotCatalog::EntryPtr> SnapshotCatalog::begin(codec::SnapshotDocument document) {
  auto entry = std::make_shared<Entry>(Entry{std::move(document)});
  entries_[entry->document.info.id] = entry;
  auto saved = co_await save(entry->document);
  if (!saved) entries_.erase(entry->document.info.id);
  if (!saved) co_return fail(saved.error());
  co_return entry;
}

Async<void> SnapshotCatalog::finish(EntryPtr entry) {
  SnapshotInfo& info = entry->document.info;
  const std::string draft = draft_directory(info.id), target = directory(info.id);
  GB_CO_TRYV(co_await run_blocking(*pool_, [&]() -> Result<void> {
    if (std::rename(draft.c_str(), target.c_str()) != 0) return fail_errno(draft);
    GB_TRY(const auto parent, sys::open_fd(data_dir_ + "/snapshots", O_RDONLY | O_DIRECTORY));
    if (::fsync(parent.get()) < 0) return fail_errno(target);
    return {};
  }));
  const auto turn = co_await entry->changes->enter();
  codec::SnapshotDocument ready = entry->document;
  ready.info.state = "ready";
  GB_CO_TRYV(co_await save(ready));
  entry->document.info.state = "ready";
  co_return Result<void>();
}

Awaitable<void> SnapshotCatalog::give_up(EntryPtr entry) {
  const std::string id = entry->document.info.id;
  entry->is_leaving = true;
  auto done = co_await run_blocking(*pool_, [&]() -> Result<void> {
    GB_TRYV(remove_image(draft_directory(id)));
    return remove_image(directory(id));
  });
  if (done) done = co_await store_->delete_object(kKind, id);
  if (!done) log::error("snapshot.not_removed", {{"snapshot", id}, {"message", done.error().message}});
  entries_.erase(id);
}

Async<void> SnapshotCatalog::update(EntryPtr entry, std::optional<std::string> name, std::optional<StringMap> labels) {
  const auto turn = co_await entry->changes->enter();
  GB_CO_TRYV(find(entry->document.info.tenant, entry->document.info.id));  // it may have gone meanwhile
  codec::SnapshotDocument changed = entry->document;
  if (name) changed.info.name = name->empty() ? changed.info.id : *name;
  if (labels) changed.info.labels = std::move(*labels);
  GB_CO_TRYV(co_await save(changed));
  entry->document.info.name = std::move(changed.info.name);
  entry->document.info.labels = std::move(changed.info.labels);
  co_return Result<void>();
}

// The name on disk goes first: what a daemon leaves that dies in between is swept, and its record says that its files are gone.
Async<void> SnapshotCatalog::remove(EntryPtr entry) {
  const std::string id = entry->document.info.id;
  if (entry->users > 0 || entry->document.info.state == "building") {
    co_return fail(Code::kSnapshotInUse, "snapshot " + id + " is in use", {{"sandboxes", std::to_string(entry->users)}});
  }
  if (std::exchange(entry->is_leaving, true)) co_return Result<void>();
  auto done = co_await run_blocking(*pool_, [&]() -> Result<void> {
    if (std::rename(directory(id).c_str(), draft_directory(id).c_str()) != 0 && errno != ENOENT) return fail_errno(directory(id));
    return {};
  });
  if (done) done = co_await store_->delete_object(kKind, id);
  if (!done) {
    entry->is_leaving = false;
    co_return done;
  }
  entries_.erase(id);
  auto removed = co_await run_blocking(*pool_, [&] { return remove_image(draft_directory(id)); });
  if (!removed) log::warn("snapshot.not_removed", {{"snapshot", id}, {"message", removed.error().message}});
  log::info("snapshot.deleted", {{"snapshot", id}, {"tenant", entry->document.info.tenant}});
  co_return Result<void>();
}

std::shared_ptr<void> SnapshotCatalog::hold(EntryPtr entry) {
  ++entry->users;
  return std::shared_ptr<void>(entry.get(), [entry](void*) { --entry->users; });
}

}  // namespace glovebox::sandbox
