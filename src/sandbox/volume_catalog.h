// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sandbox/config.h"
#include "sandbox/gate.h"
#include "sandbox/volumes.h"
#include "store/store.h"

namespace glovebox::sandbox {

// The disk of a volume: <data>/volumes/<id>/disk.img.
std::string volume_disk_path(const Config& config, const std::string& id);
// For a sandbox's start.
std::vector<runtime::VolumeDisk> volume_disks(const std::vector<VolumeMount>& mounts,
                                              const Config& config);
// kInvalidPath unless a volume may be mounted there: absolute, plain, and in nobody's way.
Result<void> check_mount_path(const std::string& path);

// The volumes of a daemon. Who has one is not recorded with it: sandboxes that live say so, so that
// it is free when they have ended, however they did. Loop thread only.
class VolumeCatalog final : public Volumes {
 public:
  struct Use {
    std::string sandbox;
    bool read_only = false;
  };
  struct Parts {
    BlockingPool* pool = nullptr;
    store::Store* store = nullptr;
    const Config* config = nullptr;
    std::function<std::vector<Use>(const std::string& id)>
        uses;  // by sandboxes that have not ended
  };
  explicit VolumeCatalog(Parts parts);
  ~VolumeCatalog() override;

  // Blocking, before the loop runs: reads the store, removes the files of what was half made or
  // half removed.
  Result<void> load();
  // On the loop: forgets those.
  Awaitable<void> recover();
  // The mounts of a sandbox to be created, with ids for names. What it returns holds until the next
  // co_await: the caller makes the sandbox before. kVolumeNotFound, kVolumeInUse, kInvalidArgument,
  // kInvalidPath.
  Result<std::vector<VolumeMount>> mounts_for(const Caller& caller,
                                              std::vector<VolumeMount> wanted) const;

  Async<Made> create_volume(const Caller& caller, VolumeSpec spec, bool get_or_create) override;
  Result<VolumeInfo> get_volume(const Caller& caller, const std::string& ref) const override;
  Result<Page<VolumeInfo>> list_volumes(const Caller& caller, size_t limit,
                                        const std::string& cursor) const override;
  Async<VolumeInfo> grow_volume(const Caller& caller, const std::string& ref,
                                uint64_t bytes) override;
  Async<void> delete_volume(const Caller& caller, const std::string& ref) override;
  Async<std::unique_ptr<ByteSource>> export_volume(const Caller& caller,
                                                   const std::string& ref) override;
  Async<std::unique_ptr<ByteSink>> import_volume(const Caller& caller,
                                                 const std::string& ref) override;

 private:
  // What is done with the whole of it, which leaves no room for sandboxes.
  enum class Work { kNone, kCreate, kGrow, kDelete, kImport, kExport };
  struct Volume {
    VolumeInfo info;
    Work work = Work::kNone;
  };
  using VolumePtr = std::shared_ptr<Volume>;
  class Hold;
  class ImportSink;

  Result<VolumePtr> find(const Caller& caller, const std::string& ref) const;
  VolumePtr find_name(const std::string& tenant, const std::string& name) const;
  VolumeInfo view(const Volume& volume) const;
  Result<void> check_spec(const Caller& caller, const VolumeSpec& spec) const;
  Result<void> check_quota(const std::string& tenant, uint64_t more_bytes, bool is_new) const;
  // kVolumeInUse when a sandbox has it (for writing only: with `readers_may`), or work is under
  // way.
  Result<void> check_free(const Volume& volume, bool readers_may) const;
  Async<void> record(const Volume& volume, std::string_view state) const;
  Async<void> make(VolumePtr volume);
  void remove_files(const std::string& id) const;
  std::string directory(const std::string& id) const;

  Parts parts_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(
      2);  // for what copies whole disks: the pool's threads are for everybody
  std::map<std::string, VolumePtr> volumes_;
  Notifier changed_;  // one is there, or gone
};

}  // namespace glovebox::sandbox
