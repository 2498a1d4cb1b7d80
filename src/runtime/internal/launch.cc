// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/launch.h"

#include "runtime/internal/raw.h"

namespace glovebox::runtime {

const char* step_name(LaunchStep step) {
  static constexpr const char* kNames[] = {
      "none",        "enter cgroup",    "cgroup namespace", "stage tmpfs", "attach rootfs",
      "attach disk", "overlay",         "network",          "hostname",    "pivot_root",
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
                  "size=64k,nr_inodes=16,mode=755"))
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

int engine_child(void* argument) {
  auto& plan = *static_cast<EnginePlan*>(argument);
  auto run = [&] {
    if (!internal::enter_cgroup(plan) || !internal::stage_mounts(plan)) return false;
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
