// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/launch.h"

#include <iterator>

#include "runtime/internal/raw.h"
#include "runtime/internal/volumes.h"

namespace glovebox::runtime {

const char* step_name(LaunchStep step) {
  static constexpr const char* kNames[] = {
      "none",        "enter cgroup",    "cgroup namespace", "stage tmpfs", "attach rootfs",
      "attach disk", "overlay", "volumes", "network",          "hostname",    "pivot_root",
      "make /dev",   "make /sys",       "mount /proc",      "mask /proc",  "user namespace",
      "set ids",     "resource limits", "capabilities",     "descriptors", "seccomp",
      "exec"};
  return kNames[static_cast<int>(step)];
}

namespace internal {

bool enter_cgroup(LaunchCommon& plan) {
  raw::call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  plan.enter(LaunchStep::kCgroup);
  for (size_t i = 0; i < plan.cgroup_count; ++i) {
    if (raw::call(SYS_write, plan.cgroup_fds[i], "0", 1) != 1) return false;
  }
  return true;
}

bool enter_network(LaunchCommon& plan) {
  plan.enter(LaunchStep::kNetwork);
  return plan.netns_fd < 0 || raw::call(SYS_setns, plan.netns_fd, CLONE_NEWNET) == 0;
}

bool stage_mounts(LaunchCommon& plan) {
  plan.enter(LaunchStep::kStage);
  if (!raw::mount("glovebox", plan.stage, "tmpfs", raw::kNoSuid | raw::kNoDev,
                  "size=64k,nr_inodes=32,mode=755"))
    return false;
  if (raw::call(SYS_chdir, plan.stage) != 0) return false;
  if (!raw::make_dir("l", 0755) || !raw::make_dir("d", 0755) || !raw::make_dir("m", 0755) ||
      !raw::make_dir("t", 01777) || raw::call(SYS_fchmodat, AT_FDCWD, "t", 01777) != 0) {
    return false;
  }
  plan.enter(LaunchStep::kAttachRootfs);
  if (!raw::attach(plan.rootfs_fd, "l")) return false;
  plan.enter(LaunchStep::kAttachDisk);
  return raw::attach(plan.disk_fd, "d");
}

bool mount_overlay(LaunchCommon& plan) {
  plan.enter(LaunchStep::kOverlay);
  return raw::mount("overlay", "m", "overlay", raw::kNoSuid | raw::kNoDev,
                    "lowerdir=l,upperdir=d/u,workdir=d/w");
}

int open_mount_point(const char* root, const VolumePlan& volume) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  auto at = static_cast<int>(raw::call(SYS_openat, AT_FDCWD, root, kFlags, 0));
  for (size_t i = 0; i < volume.part_count && at >= 0; ++i) {
    const bool is_there = raw::call(SYS_mkdirat, at, volume.parts[i], 0755) == 0 || errno == EEXIST;
    const int next = is_there ? static_cast<int>(raw::call(SYS_openat, at, volume.parts[i], kFlags, 0)) : -1;
    const int error = errno;
    raw::call(SYS_close, at);
    errno = error;
    at = next;
  }
  return at;
}

bool arrange_descriptors(LaunchCommon& plan, int error_fd, int kept) {
  plan.enter(LaunchStep::kDescriptors);
  if (raw::call(SYS_dup3, plan.stdin_fd, 0, 0) < 0 ||
      raw::call(SYS_dup3, plan.stdout_fd, 1, 0) < 0 || raw::call(SYS_dup3, error_fd, 2, 0) < 0) {
    return false;
  }
  if (kept >= 0 && kept != 3 && raw::call(SYS_dup3, kept, 3, O_CLOEXEC) < 0) return false;
  return raw::call(SYS_close_range, kept >= 0 ? 4u : 3u, ~0u, 0u) == 0;
}

}  // namespace internal

namespace {

// The engine makes no mount points in a read-only image, so it gets an overlay to make them in; what the guest writes goes to the
// engine's own overlay above it, but for volumes, and /tmp, which is therefore on the disk.
bool stage_volumes(EnginePlan& plan) {
  static constexpr const char* kPlaces[] = {"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7"};
  static_assert(std::size(kPlaces) == kMaxVolumes);
  if (plan.volume_count == 0) return true;
  if (!internal::mount_overlay(plan)) return false;
  if (!raw::make_dir("d/t", 01777) || raw::call(SYS_fchmodat, AT_FDCWD, "d/t", 01777) != 0) return false;
  plan.enter(LaunchStep::kVolumes);
  for (size_t i = 0; i < plan.volume_count; ++i) {
    const int point = internal::open_mount_point("m", plan.volumes[i]);
    if (point < 0) return false;
    raw::call(SYS_close, point);
    if (!raw::make_dir(kPlaces[i], 0755) || !raw::attach(plan.volumes[i].mount_fd, kPlaces[i])) return false;
  }
  return true;
}

}  // namespace

int engine_child(void* argument) {
  auto& plan = *static_cast<EnginePlan*>(argument);
  auto run = [&] {
    if (!internal::enter_cgroup(plan) || !internal::stage_mounts(plan) || !stage_volumes(plan)) return false;
    if (!raw::make_dir("a", 0755) || !raw::attach(plan.agent_mount_fd, "a")) return false;
    plan.enter(LaunchStep::kProc);  // the engine takes the guest's memory size from here
    if (!raw::write_text("meminfo", plan.meminfo, 0444) || !raw::bind("meminfo", "/proc/meminfo"))
      return false;
    // runsc takes a namespace that has all of /proc/sys/net for the host's own and refuses it; newer kernels show it everywhere.
    if (!internal::enter_network(plan)) return false;
    if (plan.netns_fd >= 0 && !raw::mount("glovebox", "/proc/sys/net", "tmpfs", raw::kReadOnly | raw::kNoSuid | raw::kNoDev | raw::kNoExec, "size=4k"))
      return false;
    raw::call(SYS_chdir, "/");
    raw::call(SYS_setsid);
    raw::call(SYS_umask, 022);
    plan.enter(LaunchStep::kLimits);
    if (!raw::limit(RLIMIT_NOFILE, plan.open_files) || !raw::limit(RLIMIT_CORE, 0)) return false;
    if (!internal::arrange_descriptors(plan, plan.stderr_fd, -1)) return false;
    raw::call(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
    plan.enter(LaunchStep::kExec);
    if (!raw::reset_signals()) return false;
    raw::call(SYS_execve, plan.argv[0], plan.argv, plan.environment);
    return false;
  };
  if (!run()) plan.error = errno;
  raw::call(SYS_exit, 1);
  return 1;
}

}  // namespace glovebox::runtime
