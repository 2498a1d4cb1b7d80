// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/storage.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/log.h"
#include "base/text.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/mounts.h"

namespace glovebox::runtime {
namespace {

// Two runtimes of one process share the mounts and the template images.
std::mutex shared_mutex;
std::atomic<bool> loop_for_erofs = false;
std::atomic<uint32_t> next_slot = 0;

constexpr uint32_t kSlots = 16384;  // 0x10000000 + 16384 * 65536 stays below 2^31, the largest
                                    // group id for ping_group_range

constexpr unsigned kNoPrivileges = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// Linux 6.12 mounts the file itself; older ones, and images on a stacked file system, need a loop
// device.
Result<UniqueFd> mount_erofs(const std::string& image) {
  constexpr unsigned kAttributes = kNoPrivileges | MOUNT_ATTR_RDONLY;
  if (!loop_for_erofs) {
    auto direct = sys::new_mount("erofs", image, {{"ro", ""}}, kAttributes);
    if (direct) return direct;
    log::debug("runtime.erofs_needs_loop", {{"error", direct.error().message}});
  }
  GB_TRY(auto loop, sys::attach_loop(image, true));
  auto mount = sys::new_mount("erofs", loop.path, {{"ro", ""}}, kAttributes);
  if (mount) loop_for_erofs = true;
  return mount;
}

}  // namespace

Storage::Storage(const HostConfig& config)
    : data_(config.data_dir), stage_(config.data_dir + "/stage") {}

Result<void> Storage::make_layout() const {
  for (const char* name : {"/stage", "/mnt", "/disks", "/run", "/run/slots"}) {
    GB_TRYV(sys::make_directories(data_ + name, 0700));
  }
  return {};
}

std::string Storage::rootfs_target(const Rootfs& rootfs) const {
  return data_ + "/mnt/" + rootfs.digest.substr(0, 16);
}

bool Storage::erofs_needs_loop() const {
  return loop_for_erofs;
}

Result<void> Storage::prepare(const Rootfs& rootfs) const {
  if (rootfs.digest.size() < 16)
    return fail(Code::kInvalidArgument, "digest of the root file system is too short");
  std::string target = rootfs_target(rootfs);
  std::lock_guard lock(shared_mutex);
  if (sys::is_mount_point(target)) return {};
  GB_TRYV(sys::make_directories(target, 0700));
  GB_TRY(auto mount, mount_erofs(rootfs.image_path));
  return sys::attach_mount(mount, target);
}

Result<void> Storage::forget(const Rootfs& rootfs) const {
  std::string target = rootfs_target(rootfs);
  std::lock_guard lock(shared_mutex);
  GB_TRYV(sys::detach_mount(target));
  if (::rmdir(target.c_str()) < 0 && errno != ENOENT) return fail_errno("rmdir " + target);
  return {};
}

// The directory outlives the daemon, the mount does not: copying without a look would give an empty
// directory after a restart.
Result<UniqueFd> Storage::rootfs_copy(const Rootfs& rootfs) const {
  GB_TRYV(prepare(rootfs));
  return sys::clone_mount(rootfs_target(rootfs));
}

Result<std::string> Storage::disk_template(uint64_t bytes, uint64_t inodes) const {
  std::string path =
      data_ + "/disks/ext4-" + std::to_string(bytes) + "-" + std::to_string(inodes) + ".img";
  if (sys::exists(path)) return path;
  std::lock_guard lock(shared_mutex);
  if (sys::exists(path)) return path;
  std::string content = data_ + "/disks/content";
  GB_TRYV(sys::make_directories(content + "/u", 0755));
  GB_TRYV(sys::make_directories(content + "/w", 0755));
  std::string draft = path + ".draft";
  std::vector<std::string> command = {"mkfs.ext4",
                                      "-q",
                                      "-F",
                                      "-O",
                                      "^has_journal,^resize_inode",
                                      "-E",
                                      "lazy_itable_init=1,nodiscard,root_owner=0:0",
                                      "-m",
                                      "0",
                                      "-d",
                                      content};
  if (inodes != 0) command.insert(command.end(), {"-N", std::to_string(inodes)});
  (void)::unlink(draft.c_str());
  command.insert(command.end(),
                 {draft, std::to_string(std::max<uint64_t>(bytes >> 10, 4096)) + "k"});
  GB_TRYV(sys::run_command(command, std::chrono::seconds(60)));
  if (::rename(draft.c_str(), path.c_str()) < 0) return fail_errno("rename " + draft);
  return path;
}

Result<void> Storage::make_disk(const std::string& image, uint64_t bytes, uint64_t inodes) const {
  GB_TRY(auto ready, disk_template(bytes, inodes));
  return sys::copy_sparse(ready, image);
}

// No barriers: after a crash of the host no sandbox is resumed from its disk, and an fsync inside
// need not wait for the host's disk.
Result<UniqueFd> Storage::mount_disk(const std::string& image) const {
  GB_TRY(auto loop, sys::attach_loop(image, false));
  return sys::new_mount("ext4", loop.path, {{"nobarrier", ""}, {"noinit_itable", ""}},
                        kNoPrivileges | MOUNT_ATTR_NOATIME);
}

Result<uint32_t> Storage::claim_slot(const std::string& id) const {
  std::string directory = data_ + "/run/slots/";
  for (uint32_t tries = 0; tries < kSlots; ++tries) {
    uint32_t slot = next_slot++ % kSlots;
    UniqueFd fd(::open((directory + std::to_string(slot)).c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd && errno == EEXIST) continue;
    if (!fd) return fail_errno("slot file");
    if (::write(fd.get(), id.data(), id.size()) < 0) return fail_errno("slot file");
    return slot;
  }
  return fail(Code::kCapacity, "all id ranges are in use", {{"limit", std::to_string(kSlots)}});
}

void Storage::free_slot(uint32_t slot, const std::string& id) const {
  std::string path = data_ + "/run/slots/" + std::to_string(slot);
  auto owner = sys::read_file(path);
  if (owner && *owner == id) (void)::unlink(path.c_str());
}

std::vector<std::string> Storage::free_unknown_slots(const std::vector<std::string>& known) const {
  std::vector<std::string> freed;
  for (const auto& name : sys::list_directory(data_ + "/run/slots")) {
    std::string path = data_ + "/run/slots/" + name;
    auto owner = sys::read_file(path);
    if (owner && std::find(known.begin(), known.end(), *owner) != known.end()) continue;
    if (::unlink(path.c_str()) == 0) freed.push_back("id range " + name);
  }
  return freed;
}

std::vector<HostObject> Storage::slots() const {
  std::vector<HostObject> found;
  for (const auto& name : sys::list_directory(data_ + "/run/slots")) {
    auto owner = sys::read_file(data_ + "/run/slots/" + name);
    if (owner) found.push_back({*owner, "id range " + name});
  }
  return found;
}

}  // namespace glovebox::runtime
