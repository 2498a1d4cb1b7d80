// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "programs/attack/attack.h"

// B03: mounts, namespaces, and the switches by which a kernel can be told to run something.
namespace glovebox::attack {
namespace {

constexpr char kMarker[] =
    "glovebox-attack-mount";  // the host's side looks for it in the mount tables

// A mount that fails for want of a directory was not refused.
std::string mount_point() {
  static const std::string directory = work_directory();
  return directory;
}

Outcome mount_tmpfs(const Facts& facts) {
  const std::string at = mount_point();
  const int rc = ::mount(kMarker, at.c_str(), "tmpfs", 0, "");
  const Outcome outcome = judge(rc, facts, "mount tmpfs");
  ::umount2(at.c_str(), MNT_DETACH);
  ::rmdir(at.c_str());
  return outcome;
}

Outcome mount_bind(const Facts& facts) {
  const std::string at = mount_point();
  const int rc = ::mount("/", at.c_str(), "", MS_BIND, nullptr);
  const Outcome outcome = judge(rc, facts, "bind mount");
  ::umount2(at.c_str(), MNT_DETACH);
  ::rmdir(at.c_str());
  return outcome;
}

Outcome remount_writable(const Facts& facts) {
  return judge(::mount("", "/proc", "", MS_REMOUNT | MS_BIND, nullptr), facts, "remount /proc");
}

Outcome unmount_mask(const Facts& facts) {
  for (const char* path : {"/proc/sys", "/proc/kcore", "/proc/keys"}) {
    if (::umount2(path, MNT_DETACH) == 0) return judge(0, facts, std::string("umount ") + path);
  }
  return judge(-1, facts, "umount of a mask",
               {EINVAL, ENOENT});  // EINVAL: nothing is mounted there
}

Outcome pivot_root(const Facts& facts) {
  return judge(::syscall(SYS_pivot_root, "/", "/"), facts, "pivot_root");
}

Outcome mount_with_new_calls(const Facts& facts) {
  const long tree =
      ::syscall(SYS_open_tree, AT_FDCWD, "/", 1 | 0x80000);  // OPEN_TREE_CLONE | CLOEXEC
  if (tree >= 0) return judge(tree, facts, "open_tree");
  const Outcome first = judge(tree, facts, "open_tree");
  if (first.verdict != Verdict::kRefused) return first;
  for (const auto& [number, name] :
       {std::pair(SYS_fsopen, "fsopen"), std::pair(SYS_fspick, "fspick")}) {
    const long rc =
        number == SYS_fsopen ? ::syscall(number, "tmpfs", 0) : ::syscall(number, AT_FDCWD, "/", 0);
    const Outcome next = judge(rc, facts, name);
    if (next.verdict != Verdict::kRefused) return next;
  }
  struct {
    unsigned long long set, clear, propagation, userns;
  } attributes{0, 1, 0, 0};
  const Outcome last =
      judge(::syscall(SYS_mount_setattr, AT_FDCWD, "/proc", 0, &attributes, sizeof attributes),
            facts, "mount_setattr");
  return last.verdict != Verdict::kRefused
             ? last
             : refused(first.evidence + "; fsopen, fspick and mount_setattr likewise");
}

Outcome join_namespaces(const Facts& facts) {
  Tally tally;
  for (const char* kind : {"mnt", "net", "ipc", "uts", "cgroup", "user"}) {
    const int fd = ::open((std::string("/proc/1/ns/") + kind).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      tally.refuse(errno);
      continue;
    }
    // Entering one's own user namespace again is EINVAL everywhere; the others' owner is asked for
    // first.
    ::setns(fd, 0) == 0
        ? tally.succeed(std::string("entered the ") + kind + " namespace of process 1",
                        is_own_kernel(facts))
        : tally.refuse(errno);
    ::close(fd);
  }
  return tally.outcome("");
}

Outcome new_namespaces(const Facts& facts) {
  Tally tally;
  struct {
    const char* name;
    int flag;
  } const kinds[] = {{"mount", CLONE_NEWNS}, {"pid", CLONE_NEWPID}, {"network", CLONE_NEWNET},
                     {"ipc", CLONE_NEWIPC},  {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP},
                     {"time", 0x80}};
  for (const auto& kind : kinds) {
    static int flag;
    flag = kind.flag;
    const int error = in_child([](void*) { return ::unshare(flag) == 0 ? 0 : errno; }, nullptr);
    error == 0 ? tally.succeed(
                     std::string("made a ") + kind.name + " namespace in " +
                         (is_own_kernel(facts) ? "the sandbox's own kernel" : "the host's kernel"),
                     is_own_kernel(facts))
               : tally.refuse(error);
  }
  return tally.outcome("");
}

// The step before most kernel exploits of the last ten years.
Outcome mount_in_user_namespace(const Facts& facts) {
  const int status = in_child(
      [](void*) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return errno;
        return ::mount(kMarker, "/", "tmpfs", 0, "") == 0 ? 200 : 201;
      },
      nullptr);
  if (status != 200 && status != 201) return refused("unshare: " + error_name(status));
  const std::string what =
      std::string("a user namespace of its own") + (status == 200 ? ", and a mount in it" : "");
  if (is_own_kernel(facts))
    return harmless(what + ", both in the sandbox's own kernel (" + printable(this_kernel(), 40) +
                    ")");
  return got_through(what);
}

Outcome clone_user_namespace(const Facts& facts) {
  const long child = ::syscall(SYS_clone, CLONE_NEWUSER | 17L, 0L, 0L, 0L, 0L);
  if (child == 0) ::_exit(0);
  const Outcome outcome = judge(child, facts, "clone(CLONE_NEWUSER)");
  if (outcome.verdict != Verdict::kRefused) return outcome;
  struct {
    unsigned long long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
  } arguments{CLONE_NEWUSER, 0, 0, 0, 17, 0, 0, 0};
  const long other = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (other == 0) ::_exit(0);
  const Outcome last = judge(other, facts, "clone3(CLONE_NEWUSER)");
  return last.verdict != Verdict::kRefused ? last
                                           : refused(outcome.evidence + ", " + last.evidence);
}

// Writes back what is there, so that a success changes nothing. Triggers are opened only.
void try_setting(Tally& tally, const Facts& facts, const std::string& path, bool only_open) {
  const std::string value = read_file(path, 4096);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return tally.refuse(errno);
  struct stat status{};
  ::fstat(fd, &status);
  const bool is_null = S_ISCHR(status.st_mode);  // the mask: /dev/null lies over it
  const bool wrote = only_open || is_null || ::write(fd, value.data(), value.size()) >= 0;
  const int error = errno;
  ::close(fd);
  if (is_null) return tally.succeed(path + " is a null device", true);
  if (!wrote) return tally.refuse(error);
  tally.succeed(path + " can be written" +
                    (is_own_kernel(facts) ? ", a file of the sandbox's own kernel" : ""),
                is_own_kernel(facts));
}

Outcome write_settings(const Facts& facts) {
  Tally tally;
  for (const char* name :
       {"kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/poweroff_cmd",
        "kernel/randomize_va_space", "kernel/ns_last_pid", "kernel/shmmax", "kernel/msgmax",
        "kernel/sem", "kernel/domainname", "vm/overcommit_memory", "vm/max_map_count",
        "fs/file-max", "fs/mqueue/queues_max", "net/ipv4/ip_forward", "net/core/somaxconn",
        "user/max_user_namespaces"}) {
    try_setting(tally, facts, std::string("/proc/sys/") + name, false);
  }
  return tally.outcome("");
}

Outcome open_triggers(const Facts& facts) {
  Tally tally;
  for (const char* path : {"/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
                           "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/sysrq"}) {
    try_setting(tally, facts, path, true);
  }
  return tally.outcome("");
}

Outcome write_uevent_helper(const Facts& facts) {
  Tally tally;
  for (const char* path :
       {"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run",
        "/sys/module/printk/parameters/time", "/sys/kernel/security/apparmor/.remove",
        "/sys/kernel/debug/sched_features"}) {
    try_setting(tally, facts, path, true);
  }
  return tally.outcome("");
}

void try_cgroup_directory(Tally& tally, const Facts& facts, const std::string& directory,
                          int depth) {
  const std::string child = directory + "/glovebox-attack";
  if (::mkdir(child.c_str(), 0755) == 0) {
    ::rmdir(child.c_str());
    tally.succeed("made a group in " + directory, is_own_kernel(facts));
  } else {
    tally.refuse(errno);
  }
  for (const auto& name : list_directory(directory, 200)) {
    const std::string path = directory + "/" + name;
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) continue;
    if (S_ISDIR(status.st_mode) && depth < 4) try_cgroup_directory(tally, facts, path, depth + 1);
    if (S_ISREG(status.st_mode)) try_setting(tally, facts, path, true);
  }
}

Outcome write_cgroups(const Facts& facts) {
  Tally tally;
  try_cgroup_directory(tally, facts, "/sys/fs/cgroup", 0);
  for (const char* name : {"release_agent", "notify_on_release", "cgroup.procs", "memory.max",
                           "memory/memory.limit_in_bytes", "devices/devices.allow"}) {
    try_setting(tally, facts, std::string("/sys/fs/cgroup/") + name, true);
  }
  return tally.outcome("");
}

}  // namespace

std::vector<Attempt> mount_attempts() {
  return {{"B03", "mount_tmpfs", mount_tmpfs},
          {"B03", "mount_bind", mount_bind},
          {"B03", "remount_writable", remount_writable},
          {"B03", "unmount_mask", unmount_mask},
          {"B03", "pivot_root", pivot_root},
          {"B03", "mount_with_new_calls", mount_with_new_calls},
          {"B03", "join_namespaces", join_namespaces},
          {"B03", "new_namespaces", new_namespaces},
          {"B03", "mount_in_user_namespace", mount_in_user_namespace},
          {"B03", "clone_user_namespace", clone_user_namespace},
          {"B03", "write_settings", write_settings},
          {"B03", "open_triggers", open_triggers},
          {"B03", "write_uevent_helper", write_uevent_helper},
          {"B03", "write_cgroups", write_cgroups}};
}

}  // namespace glovebox::attack
