// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>
#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>

// What runs in a new process between clone and exec, in the daemon's memory (CLONE_VM): only system
// calls, no allocation, no library state. Everything it needs is prepared by the parent; it reports
// {step, error} by writing into the plan.
namespace glovebox::runtime {

enum class LaunchStep : int {
  kNone,
  kCgroup,
  kCgroupNamespace,
  kStage,
  kAttachRootfs,
  kAttachDisk,
  kOverlay,
  kVolumes,
  kNetwork,
  kHostname,
  kPivot,
  kDev,
  kSys,
  kProc,
  kMask,
  kUserNamespace,
  kIds,
  kLimits,
  kCapabilities,
  kDescriptors,
  kSeccomp,
  kExec,
  kCount,
};
const char* step_name(LaunchStep step);

// A volume, and where in the sandbox it goes.
struct VolumePlan {
  int mount_fd = -1;                    // detached
  const char* const* parts = nullptr;  // of its path
  size_t part_count = 0;
};

struct LaunchCommon {
  const int* cgroup_fds = nullptr;
  size_t cgroup_count = 0;
  const char* stage = nullptr;  // an empty directory of the host, the place for private mounts
  int rootfs_fd = -1;           // detached mounts
  int disk_fd = -1;
  int stdin_fd = -1;
  int stdout_fd = -1;
  int netns_fd = -1;  // negative: none to be entered
  uint64_t open_files = 0;
  const VolumePlan* volumes = nullptr;
  size_t volume_count = 0;

  LaunchStep step = LaunchStep::kNone;  // out: where it failed
  int error = 0;                        // out: errno
  std::array<int64_t, static_cast<size_t>(LaunchStep::kCount)>
      begun{};  // out: CLOCK_MONOTONIC ns, 0: not reached

  void enter(LaunchStep next) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    step = next;
    begun[static_cast<size_t>(next)] = now.tv_sec * 1000000000ll + now.tv_nsec;
  }
};

struct StaticFile {
  const char* path = nullptr;
  const char* text = nullptr;
};

// Steps that both kinds of child share.
namespace internal {
// From here on the child dies with the daemon, until exec.
bool enter_cgroup(LaunchCommon& plan);
bool enter_network(LaunchCommon& plan);
// A small tmpfs over the stage with the root file system at "l" the disk at "d" and an empty "t"
// for anybody's files; it becomes the working directory.
bool stage_mounts(LaunchCommon& plan);
// The overlay of "l" and the disk, at "m". Relative names: the mount table inside shows them, and no path of the host.
bool mount_overlay(LaunchCommon& plan);
// The directory of a volume below the one at `root`, made where it is missing. No link is followed, so it cannot lie elsewhere.
int open_mount_point(const char* root, const VolumePlan& volume);
// 0, 1, 2 and, unless negative, `kept` as 3 (closed by exec); nothing else stays open.
bool arrange_descriptors(LaunchCommon& plan, int error_fd, int kept);
}  // namespace internal

// The container: becomes PID 1 of a new sandbox. Started with new mount, PID, network, IPC and UTS
// namespaces, owned by the host's user namespace, so that root inside has no power over them.
struct ContainerPlan : LaunchCommon {
  int user_namespace_fd = -1;
  int agent_fd = -1;     // sealed memory file
  uint32_t base_id = 0;  // host's id of the sandbox's root
  const char* hostname = nullptr;
  const char* ping_group_range = nullptr;
  const char* devpts_options = nullptr;
  const char* shm_options = nullptr;
  const char* boot_id = nullptr;  // the host's would tell which sandboxes share it, and since when
  std::array<StaticFile, 5> sys_files{};
  sock_fprog calls{};
  sock_fprog arguments{};
};
int container_child(void* plan);

// runsc: keeps the host's ids and namespaces but for a private mount table, and runs `argv`.
struct EnginePlan : LaunchCommon {
  int agent_mount_fd = -1;  // goes to <stage>/a
  int stderr_fd = -1;
  const char* meminfo = nullptr;  // content for /proc/meminfo as the engine sees it
  const char* const* argv = nullptr;
  const char* const* environment = nullptr;
};
int engine_child(void* plan);

// The capabilities of root inside, bit set: what package managers and servers need within their own
// files and processes.
extern const uint64_t kSandboxCapabilities;

}  // namespace glovebox::runtime
