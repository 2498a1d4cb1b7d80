// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "sandbox/gate.h"
#include "sandbox/snapshot_codec.h"
#include "store/store.h"

namespace glovebox::sandbox {

// The snapshots there are: in the store, and below <data>/snapshots/<id>. What is being made or removed has another name there, and is
// swept when the daemon starts. Loop thread only, but for what says so.
class SnapshotCatalog {
 public:
  struct Entry {
    codec::SnapshotDocument document;
    int users = 0;            // sandboxes that are being started from it
    bool is_leaving = false;  // it is being removed
    std::shared_ptr<Gate> changes = std::make_shared<Gate>(1);  // each is recorded whole: one after the other
    SnapshotInfo info() const;
  };
  using EntryPtr = std::shared_ptr<Entry>;

  SnapshotCatalog(std::string data_dir, store::Store* store, BlockingPool* pool);
  ~SnapshotCatalog();

  // Blocking, before the loop runs. Snapshots whose files are gone are there as failed ones; of those whose making was cut off, which no
  // caller was told of, only records are left, for forget_cut_off().
  Result<void> load();
  Awaitable<void> forget_cut_off();

  // kSnapshotNotFound, also for another tenant's.
  Result<EntryPtr> find(const std::string& tenant, const std::string& id) const;
  Result<Page<SnapshotInfo>> list(const std::string& tenant, const SnapshotFilter& filter) const;
  bool uses_template(const std::string& version) const;
  // Different bytes of this tenant's snapshots: what several hold counts once.
  uint64_t bytes_of(const std::string& tenant) const;

  // Recorded as building before anything of it is on disk.
  Async<EntryPtr> begin(codec::SnapshotDocument document);
  std::string draft_directory(const std::string& id) const { return directory(id) + ".draft"; }
  std::string directory(const std::string& id) const { return data_dir_ + "/snapshots/" + id; }
  // The draft, sealed, becomes the snapshot.
  Async<void> finish(EntryPtr entry);
  // Nothing is left of it.
  Awaitable<void> give_up(EntryPtr entry);
  Async<void> update(EntryPtr entry, std::optional<std::string> name, std::optional<StringMap> labels);
  // kSnapshotInUse while it has users or is being made.
  Async<void> remove(EntryPtr entry);
  // It cannot be removed as long as this is held.
  static std::shared_ptr<void> hold(EntryPtr entry);

 private:
  Async<void> save(const codec::SnapshotDocument& document);
  void sweep() const;

  std::string data_dir_;
  store::Store* store_;
  BlockingPool* pool_;
  std::map<std::string, EntryPtr> entries_;
  std::vector<std::string> cut_off_;
};

}  // namespace glovebox::sandbox
