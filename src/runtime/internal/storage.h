// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/runtime.h"

// The file systems of sandboxes: one mount of each template's image in the daemon's namespace, of
// which every sandbox gets a detached copy; and one private ext4 image per sandbox, which is
// mounted nowhere but in that sandbox.
namespace glovebox::runtime {

class Storage {
 public:
  explicit Storage(const HostConfig& config);

  Result<void> make_layout() const;

  Result<void> prepare(const Rootfs& rootfs) const;  // idempotent
  Result<void> forget(const Rootfs& rootfs) const;
  Result<UniqueFd> rootfs_copy(const Rootfs& rootfs) const;
  bool erofs_needs_loop() const;  // known after the first prepare()

  // A sparse copy of a ready file system; holds the directories "u" and "w" (overlay's upper and
  // work).
  Result<void> make_disk(const std::string& image, uint64_t bytes, uint64_t inodes) const;
  // Detached; the loop device goes with the mount.
  Result<UniqueFd> mount_disk(const std::string& image) const;

  // Numbers for id ranges, unique in this data directory, also over restarts: a file each, holding
  // the sandbox's id.
  Result<uint32_t> claim_slot(const std::string& id) const;
  void free_slot(uint32_t slot, const std::string& id) const;
  std::vector<std::string> free_unknown_slots(const std::vector<std::string>& known) const;
  std::vector<HostObject> slots() const;

  const std::string& stage() const { return stage_; }
  std::string run_directory() const { return data_ + "/run"; }

 private:
  std::string rootfs_target(const Rootfs& rootfs) const;
  Result<std::string> disk_template(uint64_t bytes, uint64_t inodes) const;

  std::string data_, stage_;
};

}  // namespace glovebox::runtime
