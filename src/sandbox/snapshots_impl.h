// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "image/templates.h"
#include "sandbox/sandbox.h"
#include "sandbox/snapshot_catalog.h"
#include "sandbox/snapshots.h"

namespace glovebox::sandbox {

// The Snapshots of a daemon. Loop thread only.
class SnapshotsImpl : public Snapshots {
 public:
  using Box = std::shared_ptr<Sandbox>;
  // What it needs of the manager.
  struct Host {
    Executor executor;
    BlockingPool* pool = nullptr;
    store::Store* store = nullptr;
    const Config* config = nullptr;
    image::Templates* templates = nullptr;
    std::function<Result<Box>(const Caller&, const std::string& id)> find;
    // A document for a new sandbox of this template, checked like any create call.
    std::function<Result<codec::SandboxDocument>(const Caller&, const CreateSpec&, const image::Template&, runtime::Tier)> plan;
    std::function<Result<void>(size_t count)> check_room;
    // Takes its place now, before anything else can.
    std::function<Box(codec::SandboxDocument, Sandbox::Origin)> add;
    // Starts it, and ends it when that fails.
    std::function<Async<void>(Box, Deadline, Clock::time_point began)> start;
    // Whether a sandbox goes on from what is in this directory.
    std::function<bool(const std::string& directory)> is_image;
  };
  explicit SnapshotsImpl(Host host);

  Result<void> load() { return catalog_.load(); }  // blocking, before the loop runs
  Awaitable<void> recover() { return catalog_.forget_cut_off(); }
  bool uses_template(const std::string& version) const { return catalog_.uses_template(version); }

  // What a create call that names a snapshot comes to.
  struct Base {
    CreateSpec spec;  // with what the snapshot says where the caller said nothing
    image::Template tmpl;
    Sandbox::Origin origin;
  };
  Result<Base> base_for(const Caller& caller, CreateSpec spec) const;

  Async<SnapshotInfo> snapshot(const Caller& caller, const std::string& sandbox, SnapshotSpec spec) override;
  Result<SnapshotInfo> get_snapshot(const Caller& caller, const std::string& id) const override;
  Result<Page<SnapshotInfo>> list_snapshots(const Caller& caller, const SnapshotFilter& filter) const override;
  Async<SnapshotInfo> update_snapshot(const Caller& caller, const std::string& id, std::optional<std::string> name,
                                      std::optional<StringMap> labels) override;
  Async<void> delete_snapshot(const Caller& caller, const std::string& id) override;
  Async<void> verify_snapshot(const Caller& caller, const std::string& id) override;
  Async<std::vector<SandboxInfo>> fork(const Caller& caller, const std::string& sandbox, ForkSpec spec) override;
  Async<SandboxInfo> reset(const Caller& caller, const std::string& sandbox, const std::string& snapshot) override;
  Async<SandboxInfo> hibernate(const Caller& caller, const std::string& sandbox, std::optional<runtime::Kept> require) override;
  Async<Page<FileChange>> diff(const Caller& caller, const std::string& sandbox, const std::string& against, size_t limit,
                               const std::string& cursor) override;

 private:
  Result<void> check_quota(const std::string& tenant, uint64_t more) const;
  Async<void> make(Box box, SnapshotCatalog::EntryPtr entry);
  // For later comparisons with a snapshot in this directory: what is different from the template. Where that takes long it is left out.
  Awaitable<void> record_changes(Box box, std::string directory);
  Async<std::vector<FileChange>> recorded_changes(const Caller& caller, const SandboxInfo& sandbox, const std::string& id);
  Result<SnapshotCatalog::EntryPtr> find_ready(const std::string& tenant, const std::string& id) const;
  Sandbox::Origin origin_of(SnapshotCatalog::EntryPtr entry) const;
  Result<CreateSpec> child_spec(const SandboxInfo& parent, const ForkSpec& spec) const;
  Async<std::vector<SandboxInfo>> start_children(const Caller& caller, Box parent, SandboxInfo source, ForkSpec spec, Sandbox::Origin origin,
                                                 Clock::time_point began);
  Async<void> start_all(std::vector<Box> children, Deadline deadline, Clock::time_point began);

  Host host_;
  SnapshotCatalog catalog_;
};

}  // namespace glovebox::sandbox
