// SPDX-License-Identifier: Apache-2.0
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "runtime/internal/launch.h"
#include "runtime/internal/raw.h"
#include "sys/inside.h"

namespace glovebox::runtime {
const uint64_t kSandboxCapabilities = sys::kInsideCapabilities;

namespace {

using sys::kMaskedDirectories;
using sys::kMaskedFiles;

struct Device {
  const char* path;
  unsigned major, minor;
};
constexpr Device kDevices[] = {{"/dev/null", 1, 3},   {"/dev/zero", 1, 5},    {"/dev/full", 1, 7},
                               {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}};
struct Link {
  const char* path;
  const char* target;
};
constexpr Link kLinks[] = {{"/dev/fd", "/proc/self/fd"},
                           {"/dev/stdin", "/proc/self/fd/0"},
                           {"/dev/stdout", "/proc/self/fd/1"},
                           {"/dev/stderr", "/proc/self/fd/2"},
                           {"/dev/ptmx", "pts/ptmx"}};

// Files are made as the sandbox's root: the overlay's layers have mapped owners and know no host
// root. Losing fsuid 0 costs the capabilities over files, so they are raised again.
bool act_as_sandbox_root(uint32_t base) {
  raw::call(SYS_setfsgid, base);
  raw::call(SYS_setfsuid, base);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (raw::call(SYS_capget, &header, data) != 0) return false;
  data[0].effective = data[0].permitted;
  data[1].effective = data[1].permitted;
  return raw::call(SYS_capset, &header, data) == 0;
}

bool mount_root(ContainerPlan& plan) {
  if (!internal::stage_mounts(plan)) return false;
  plan.enter(LaunchStep::kOverlay);
  return act_as_sandbox_root(plan.base_id) && internal::mount_overlay(plan);
}

bool attach_volumes(ContainerPlan& plan) {
  if (plan.volume_count > 0) plan.enter(LaunchStep::kVolumes);
  for (size_t i = 0; i < plan.volume_count; ++i) {
    const int point = internal::open_mount_point("m", plan.volumes[i]);
    if (point < 0) return false;
    if (raw::call(SYS_move_mount, plan.volumes[i].mount_fd, "", point, "",
                  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
      return false;
    raw::call(SYS_close, point);
  }
  return true;
}

// Through the host's /proc, which shows the network namespace of the reader.
bool set_up_network(ContainerPlan& plan) {
  if (!internal::enter_network(plan)) return false;
  auto fd = static_cast<int>(raw::call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return false;
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  bool up = raw::call(SYS_ioctl, fd, SIOCSIFFLAGS, &request) == 0;
  raw::call(SYS_close, fd);
  if (!up) return false;
  // Comforts, absent from some kernels.
  raw::write_text("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  raw::write_text("/proc/sys/net/ipv4/ping_group_range", plan.ping_group_range);
  plan.enter(LaunchStep::kHostname);
  return raw::call(SYS_sethostname, plan.hostname, raw::length(plan.hostname)) == 0;
}

// From here on no path can lead to the host's files, also not through symbolic links of a hostile
// template.
bool pivot(ContainerPlan& plan) {
  plan.enter(LaunchStep::kPivot);
  return raw::call(SYS_chdir, "m") == 0 && raw::call(SYS_pivot_root, ".", ".") == 0 &&
         raw::call(SYS_umount2, ".", raw::kDetach) == 0 && raw::call(SYS_chdir, "/") == 0;
}

bool make_dev(ContainerPlan& plan) {
  plan.enter(LaunchStep::kDev);
  if (!raw::make_dir("/dev", 0755)) return false;
  if (!raw::mount("tmpfs", "/dev", "tmpfs", raw::kNoSuid | raw::kNoExec,
                  "mode=755,size=64k,nr_inodes=64"))
    return false;
  for (const auto& device : kDevices) {
    if (raw::call(SYS_mknodat, AT_FDCWD, device.path, S_IFCHR | 0666,
                  makedev(device.major, device.minor)) != 0)
      return false;
  }
  for (const auto& link : kLinks) {
    if (raw::call(SYS_symlinkat, link.target, AT_FDCWD, link.path) != 0) return false;
  }
  if (!raw::make_dir("/dev/pts", 0755) || !raw::make_dir("/dev/shm", 01777)) return false;
  return raw::mount("devpts", "/dev/pts", "devpts", raw::kNoSuid | raw::kNoExec,
                    plan.devpts_options) &&
         raw::mount("tmpfs", "/dev/shm", "tmpfs", raw::kNoSuid | raw::kNoDev | raw::kNoExec,
                    plan.shm_options);
}

// Not the host's sysfs, which names its hardware: the few files from which run-times learn their
// size.
bool make_sys(ContainerPlan& plan) {
  plan.enter(LaunchStep::kSys);
  constexpr unsigned long kFlags = raw::kNoSuid | raw::kNoDev | raw::kNoExec;
  if (!raw::make_dir("/sys", 0755)) return false;
  if (!raw::mount("tmpfs", "/sys", "tmpfs", kFlags, "mode=755,size=64k,nr_inodes=32")) return false;
  for (const char* path : {"/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu",
                           "/sys/fs", "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/kernel"}) {
    if (!raw::make_dir(path, 0755)) return false;
  }
  for (const auto& file : plan.sys_files) {
    if (file.path != nullptr && !raw::write_text(file.path, file.text, 0444)) return false;
  }
  return raw::mount(nullptr, "/sys", nullptr, raw::kRemount | raw::kBind | raw::kReadOnly | kFlags,
                    nullptr);
}

bool make_proc(ContainerPlan& plan) {
  plan.enter(LaunchStep::kProc);
  if (!raw::make_dir("/proc", 0555)) return false;
  return raw::mount("proc", "/proc", "proc", raw::kNoSuid | raw::kNoDev | raw::kNoExec, nullptr);
}

// The mount keeps the file, which has no name then.
bool hide_boot_id(const ContainerPlan& plan) {
  constexpr const char* kFile = "/dev/.boot_id";
  constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";
  return raw::write_text(kFile, plan.boot_id, 0444) && raw::bind_read_only(kFile, kBootId) &&
         raw::call(SYS_unlinkat, AT_FDCWD, kFile, 0) == 0;
}

bool mask_proc(ContainerPlan& plan) {
  plan.enter(LaunchStep::kMask);
  for (const char* path : kMaskedFiles) {
    if (!raw::bind("/dev/null", path) && errno != ENOENT) return false;
  }
  for (const char* path : kMaskedDirectories) {  // an empty directory, and read-only
    if (!raw::bind("/sys/kernel", path) && errno != ENOENT) return false;
  }
  return raw::bind_read_only("/proc/sys", "/proc/sys") && hide_boot_id(plan);
}

// The namespaces stay with the host's root; from here on the process has power only over what the
// mapped ids own.
bool become_sandbox_root(ContainerPlan& plan) {
  plan.enter(LaunchStep::kUserNamespace);
  raw::call(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr, 0, 0,
            0);  // not the daemon's; absent in some kernels
  if (raw::call(SYS_setns, plan.user_namespace_fd, CLONE_NEWUSER) != 0) return false;
  plan.enter(LaunchStep::kIds);
  return raw::call(SYS_setresgid, 0, 0, 0) == 0 && raw::call(SYS_setgroups, 0, nullptr) == 0 &&
         raw::call(SYS_setresuid, 0, 0, 0) == 0;
}

bool set_limits(ContainerPlan& plan) {
  plan.enter(LaunchStep::kLimits);
  raw::call(SYS_umask, 022);
  raw::call(SYS_setsid);
  // A core size of 1 keeps the kernel from running the host's core handler on a guest's behalf; 0
  // would not.
  return raw::limit(RLIMIT_NOFILE, plan.open_files) && raw::limit(RLIMIT_CORE, 1) &&
         raw::limit(RLIMIT_MEMLOCK, 64 << 20);
}

bool drop_capabilities(ContainerPlan& plan) {
  plan.enter(LaunchStep::kCapabilities);
  for (int capability = 0; capability < 64; ++capability) {
    if ((kSandboxCapabilities & sys::capability_bit(capability)) != 0) continue;
    if (raw::call(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      if (errno != EINVAL) return false;
      break;  // past the last one this kernel knows
    }
  }
  raw::call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].permitted = data[0].effective = static_cast<uint32_t>(kSandboxCapabilities);
  data[1].permitted = data[1].effective = static_cast<uint32_t>(kSandboxCapabilities >> 32);
  return raw::call(SYS_capset, &header, data) == 0 &&
         raw::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool load_filters(ContainerPlan& plan) {
  plan.enter(LaunchStep::kSeccomp);
  return raw::call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &plan.arguments) == 0 &&
         raw::call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &plan.calls) == 0;
}

bool run_agent(ContainerPlan& plan) {
  auto null_fd =
      static_cast<int>(raw::call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0));
  if (!internal::arrange_descriptors(plan, null_fd, plan.agent_fd)) return false;
  if (!raw::reset_signals()) return false;
  raw::call(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
  if (!load_filters(plan)) return false;
  plan.enter(LaunchStep::kExec);
  static const char* const argv[] = {"glovebox-agent", nullptr};
  static const char* const environment[] = {nullptr};
  raw::call(SYS_execveat, 3, "", argv, environment, AT_EMPTY_PATH);
  return false;
}

bool build(ContainerPlan& plan) {
  if (!internal::enter_cgroup(plan)) return false;
  plan.enter(LaunchStep::kCgroupNamespace);  // after entering: what was entered is the root that
                                             // /proc/self/cgroup shows
  if (raw::call(SYS_unshare, CLONE_NEWCGROUP) != 0) return false;
  raw::call(SYS_umask, 0);
  return mount_root(plan) && attach_volumes(plan) && set_up_network(plan) && pivot(plan) && make_dev(plan) &&
         make_sys(plan) && make_proc(plan) && mask_proc(plan) && become_sandbox_root(plan) &&
         set_limits(plan) && drop_capabilities(plan) && run_agent(plan);
}

}  // namespace

int container_child(void* argument) {
  auto& plan = *static_cast<ContainerPlan*>(argument);
  if (!build(plan)) plan.error = errno;
  raw::call(SYS_exit, 1);
  return 1;
}

}  // namespace glovebox::runtime
