// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "sandbox/sandbox.h"
#include "sandbox/snapshots.h"

namespace glovebox::sandbox {

// The Snapshots of a daemon. Loop thread only.
class SnapshotsImpl : public Snapshots {
 public:
  using Box = std::shared_ptr<Sandbox>;
  // What it needs of the manager.
  struct Host {
    std::function<Result<Box>(const Caller&, const std::string& id)> find;
  };
  explicit SnapshotsImpl(Host host) : host_(std::move(host)) {}

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

 private:
  Host host_;
};

}  // namespace glovebox::sandbox
