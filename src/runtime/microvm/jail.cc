// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/jail.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/text.h"
#include "runtime/internal/launch.h"
#include "runtime/internal/raw.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace glovebox::runtime::microvm {
namespace {

constexpr int kAside = 512;  // where descriptors wait for their numbers
constexpr const char* kLog = "log/log";
constexpr unsigned kKvmMajor = 10, kKvmMinor = 232;

// What the child makes of the host's files, in relative names: it stands in the new root directory.
struct Place {
  enum class Kind { kDirectory, kFile, kLink } kind = Kind::kDirectory;
  std::string path, target;
  UniqueFd mount;
};

struct RawPlace {
  Place::Kind kind;
  const char* path;
  const char* target;
  int mount_fd;
};

struct JailPlan : LaunchCommon {
  const RawPlace* places = nullptr;
  size_t place_count = 0;
  uint32_t uid = 0;
  const char* memory_options = nullptr;
  const char* log_options = nullptr;
  bool kvm = false;
  const int (*descriptors)[2] = nullptr;
  size_t descriptor_count = 0;
  const char* const* argv = nullptr;
  const char* const* environment = nullptr;
};

bool make_places(const JailPlan& plan) {
  for (size_t i = 0; i < plan.place_count; ++i) {
    const RawPlace& place = plan.places[i];
    if (place.kind == Place::Kind::kDirectory && !raw::make_dir(place.path, 0755)) return false;
    if (place.kind == Place::Kind::kLink &&
        raw::call(SYS_symlinkat, place.target, AT_FDCWD, place.path) != 0)
      return false;
    if (place.kind == Place::Kind::kFile && !raw::write_text(place.path, "", 0444)) return false;
    if (place.mount_fd >= 0 && !raw::attach(place.mount_fd, place.path)) return false;
  }
  return true;
}

bool make_root(JailPlan& plan) {
  plan.enter(LaunchStep::kStage);
  raw::call(SYS_umask, 0);
  if (!raw::mount("glovebox", plan.stage, "tmpfs", raw::kNoSuid, "size=64k,nr_inodes=256,mode=755"))
    return false;
  if (raw::call(SYS_chdir, plan.stage) != 0) return false;
  plan.enter(LaunchStep::kAttachRootfs);
  return make_places(plan);
}

bool make_own_directories(JailPlan& plan) {
  plan.enter(LaunchStep::kAttachDisk);
  constexpr unsigned long kFlags = raw::kNoSuid | raw::kNoDev | raw::kNoExec;
  if (!raw::make_dir("log", 0755) || !raw::mount("log", "log", "tmpfs", kFlags, plan.log_options))
    return false;
  if (plan.memory_options == nullptr) return true;
  return raw::make_dir("memory", 0755) &&
         raw::mount("memory", "memory", "tmpfs", kFlags, plan.memory_options);
}

bool pivot(JailPlan& plan) {
  plan.enter(LaunchStep::kPivot);
  return raw::call(SYS_pivot_root, ".", ".") == 0 &&
         raw::call(SYS_umount2, ".", raw::kDetach) == 0 && raw::call(SYS_chdir, "/") == 0;
}

bool make_dev(JailPlan& plan) {
  plan.enter(LaunchStep::kDev);
  if (!raw::make_dir("/dev", 0755)) return false;
  if (raw::call(SYS_mknodat, AT_FDCWD, "/dev/null", S_IFCHR | 0666, makedev(1, 3)) != 0)
    return false;
  if (plan.kvm) {
    if (raw::call(SYS_mknodat, AT_FDCWD, "/dev/kvm", S_IFCHR | 0600,
                  makedev(kKvmMajor, kKvmMinor)) != 0)
      return false;
    if (raw::call(SYS_fchownat, AT_FDCWD, "/dev/kvm", plan.uid, plan.uid, 0) != 0) return false;
  }
  return raw::mount(nullptr, "/", nullptr,
                    raw::kRemount | raw::kBind | raw::kReadOnly | raw::kNoSuid, nullptr);
}

// Leaving user 0 empties every set of capabilities but the bounding one, which goes first.
bool become_nobody(JailPlan& plan) {
  plan.enter(LaunchStep::kIds);
  raw::call(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr, 0, 0, 0);
  for (int capability = 0; capability < 64; ++capability) {
    if (raw::call(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      if (errno != EINVAL) return false;
      break;  // past the last one this kernel knows
    }
  }
  raw::call(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return raw::call(SYS_setgroups, 0, nullptr) == 0 &&
         raw::call(SYS_setresgid, plan.uid, plan.uid, plan.uid) == 0 &&
         raw::call(SYS_setresuid, plan.uid, plan.uid, plan.uid) == 0;
}

bool limit_itself(JailPlan& plan) {
  plan.enter(LaunchStep::kLimits);
  raw::call(SYS_umask, 077);
  raw::call(SYS_setsid);
  if (!raw::limit(RLIMIT_CORE, 0) || !raw::limit(RLIMIT_MEMLOCK, 8 << 20)) return false;
  plan.enter(LaunchStep::kCapabilities);
  return raw::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// Two steps, since a wanted number may be that of another one's source. What is not named is
// closed.
bool arrange(JailPlan& plan) {
  plan.enter(LaunchStep::kDescriptors);
  auto log = static_cast<int>(
      raw::call(SYS_openat, AT_FDCWD, kJailLog, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (log < 0) return false;
  std::array<int, 64> aside{};
  if (plan.descriptor_count > aside.size()) return false;
  for (size_t i = 0; i < plan.descriptor_count; ++i) {
    aside[i] =
        static_cast<int>(raw::call(SYS_fcntl, plan.descriptors[i][0], F_DUPFD_CLOEXEC, kAside));
    if (aside[i] < 0) return false;
  }
  const auto log_aside = static_cast<int>(raw::call(SYS_fcntl, log, F_DUPFD_CLOEXEC, kAside));
  if (log_aside < 0 || raw::call(SYS_dup3, log_aside, 2, 0) < 0) return false;
  int last = 2;
  for (size_t i = 0; i < plan.descriptor_count; ++i) {
    if (raw::call(SYS_dup3, aside[i], plan.descriptors[i][1], 0) < 0) return false;
    if (plan.descriptors[i][1] > last) last = plan.descriptors[i][1];
  }
  return raw::call(SYS_close_range, static_cast<unsigned>(last) + 1, ~0u, 0u) == 0 &&
         raw::limit(RLIMIT_NOFILE, plan.open_files);
}

int jail_child(void* argument) {
  auto& plan = *static_cast<JailPlan*>(argument);
  auto run = [&] {
    if (!internal::enter_cgroup(plan)) return false;
    plan.enter(LaunchStep::kCgroupNamespace);
    if (raw::call(SYS_unshare, CLONE_NEWCGROUP) != 0) return false;
    if (!make_root(plan) || !make_own_directories(plan) || !pivot(plan) || !make_dev(plan) ||
        !become_nobody(plan) || !limit_itself(plan))
      return false;
    if (!arrange(plan)) return false;
    plan.enter(LaunchStep::kExec);
    if (!raw::reset_signals()) return false;
    raw::call(SYS_execve, plan.argv[0], plan.argv, plan.environment);
    return false;
  };
  if (!run()) plan.error = errno;
  raw::call(SYS_exit, 1);
  return 1;
}

// The directories above `shown`, once each, then the thing itself, which is `path` on the host.
Result<void> add_place(std::vector<Place>* places, const std::string& path, const std::string& shown) {
  auto is_there = [&](const std::string& name) {
    return std::any_of(places->begin(), places->end(),
                       [&](const Place& p) { return p.path == name; });
  };
  struct stat st{};
  if (::lstat(path.c_str(), &st) < 0) return {};
  const std::string name = shown.substr(1);
  const auto is_inside = [&](const Place& p) {
    return p.kind != Place::Kind::kFile && name.starts_with(p.path + "/") &&
           (p.kind == Place::Kind::kLink || p.mount);
  };
  if (std::any_of(places->begin(), places->end(), is_inside)) return {};
  for (size_t slash = name.find('/'); slash != std::string::npos;
       slash = name.find('/', slash + 1)) {
    if (!is_there(name.substr(0, slash)))
      places->push_back({Place::Kind::kDirectory, name.substr(0, slash), "", {}});
  }
  if (is_there(name)) return {};
  if (S_ISLNK(st.st_mode)) {
    places->push_back({Place::Kind::kLink, name, sys::read_link(path), {}});
    return {};
  }
  GB_TRY(auto mount, sys::clone_mount(path));
  GB_TRYV(sys::make_read_only(mount));
  places->push_back({S_ISDIR(st.st_mode) ? Place::Kind::kDirectory : Place::Kind::kFile, name, "",
                     std::move(mount)});
  return {};
}

std::string tmpfs_options(uint64_t bytes, unsigned inodes, uint32_t uid) {
  const std::string id = std::to_string(uid);
  return "mode=700,size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(inodes) +
         ",uid=" + id + ",gid=" + id;
}

}  // namespace

std::vector<std::string> library_paths() {
  return {"/lib",       "/lib64",          "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
          "/usr/lib64", "/etc/ld.so.cache"};
}

Result<sys::ProcessId> start_jailed(const JailSpec& spec) {
  std::vector<Place> places;
  for (const std::string& path : spec.shown) GB_TRYV(add_place(&places, path, path));
  for (const auto& [path, shown] : spec.shown_as) {
    if (!sys::exists(path)) return fail(Code::kNotFound, path + " is not there");
    GB_TRYV(add_place(&places, path, shown));
  }
  std::vector<RawPlace> raw_places;
  for (const Place& p : places)
    raw_places.push_back({p.kind, p.path.c_str(), p.target.c_str(), p.mount.get()});
  std::vector<std::array<int, 2>> descriptors;
  for (const auto& [ours, its] : spec.descriptors) descriptors.push_back({ours, its});
  std::vector<const char*> argv;
  for (const auto& word : spec.argv) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  const std::string preload = "LD_PRELOAD=" + spec.preload;
  const char* const environment[] = {"PATH=/usr/bin", "LC_ALL=C", spec.preload.empty() ? nullptr : preload.c_str(), nullptr};
  const std::string memory = tmpfs_options(spec.memory_bytes + (1 << 20), 8, spec.uid),
                    log = tmpfs_options(256 << 10, 8, spec.uid);
  JailPlan plan;
  plan.cgroup_fds = spec.cgroup_fds.data();
  plan.cgroup_count = spec.cgroup_fds.size();
  plan.stage = spec.stage.c_str();
  plan.places = raw_places.data();
  plan.place_count = raw_places.size();
  plan.uid = spec.uid;
  plan.memory_options = spec.memory_bytes != 0 ? memory.c_str() : nullptr;
  plan.log_options = log.c_str();
  plan.kvm = spec.kvm;
  plan.descriptors = reinterpret_cast<const int(*)[2]>(descriptors.data());
  plan.descriptor_count = descriptors.size();
  plan.open_files = spec.open_files;
  plan.argv = argv.data();
  plan.environment = environment;
  constexpr int kNamespaces =
      CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;
  GB_TRY(auto child, sys::spawn_sharing_memory(kNamespaces, jail_child, &plan));
  if (plan.error != 0) {
    ::waitpid(child.pid, nullptr, 0);
    return fail_errno(std::string("the monitor's jail: ") + step_name(plan.step), plan.error);
  }
  const auto process = sys::identify(child.pid);
  if (!process) return fail(Code::kStartFailed, "the monitor's process vanished");
  return *process;
}

Result<UniqueFd> open_log(const sys::ProcessId& process) {
  return sys::open_fd("/proc/" + std::to_string(process.pid) + "/root/" + kLog,
                      O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
}

std::string read_log(int fd, size_t max_bytes) {
  struct stat st{};
  if (::fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return {};
  const auto size = static_cast<size_t>(std::max<off_t>(st.st_size, 0));
  const size_t from = size > max_bytes ? size - max_bytes : 0;
  std::string text(std::min(size, max_bytes), '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), static_cast<off_t>(from));
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return utf8_lossy(text);
}

void KeptLogs::keep(const std::string& id, UniqueFd fd) {
  const std::lock_guard lock(mutex_);
  logs_[id] = std::move(fd);
}

std::string KeptLogs::read(const std::string& id, size_t max_bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = logs_.find(id);
  return found == logs_.end() ? "" : read_log(found->second.get(), max_bytes);
}

void KeptLogs::drop(const std::string& id) {
  const std::lock_guard lock(mutex_);
  logs_.erase(id);
}

}  // namespace glovebox::runtime::microvm
