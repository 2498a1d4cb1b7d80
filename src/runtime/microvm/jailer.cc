// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/jailer.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/text.h"
#include "runtime/internal/launch.h"
#include "runtime/internal/raw.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxId = 64;
constexpr const char* kRootBytes =
    "32m";  // the program, which is copied, a few sockets and devices
constexpr const char* kRootInodes = "128";
constexpr std::string_view kAlphanumeric =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

bool has_only(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kAlphanumeric.find(c) != std::string_view::npos ||
           more.find(c) != std::string_view::npos;
  });
}

Result<void> check(const JailerSpec& spec) {
  const bool is_id = !spec.id.empty() && spec.id.size() <= kMaxId && has_only(spec.id, "-");
  if (!is_id) return fail(Code::kInvalidArgument, "\"" + spec.id + "\" cannot name a jail");
  if (spec.uid == 0) return fail(Code::kInvalidArgument, "a monitor must not be root");
  for (const auto& path : {spec.jailer, spec.firecracker, spec.base}) {
    if (path.empty() || path.front() != '/')
      return fail(Code::kInvalidPath, "\"" + path + "\": must be absolute");
  }
  for (const auto& file : spec.files) {
    if (file.name.empty() || file.name.front() == '.' || !has_only(file.name, "-_."))
      return fail(Code::kInvalidPath, "\"" + file.name + "\" cannot name a file of a jail");
  }
  return {};
}

// The jailer names directory and pid file after what the program's path resolves to.
std::string program_name(const JailerSpec& spec) {
  std::error_code error;
  const auto real = std::filesystem::canonical(spec.firecracker, error);
  return error ? spec.firecracker.substr(spec.firecracker.rfind('/') + 1)
               : real.filename().string();
}

struct RawFile {
  const char* name;
  int mount_fd;
};

struct JailerPlan : LaunchCommon {
  int root_fd = -1;  // detached mount, to be attached at root_path
  const char* root_path = nullptr;
  const RawFile* files = nullptr;
  size_t file_count = 0;
  const char* const* argv = nullptr;
};

bool make_root(JailerPlan& plan) {
  plan.enter(LaunchStep::kStage);
  if (!raw::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr)) return false;
  if (!raw::attach(plan.root_fd, plan.root_path) || raw::call(SYS_chdir, plan.root_path) != 0)
    return false;
  plan.enter(LaunchStep::kAttachDisk);
  for (size_t i = 0; i < plan.file_count; ++i) {
    if (!raw::write_text(plan.files[i].name, "", 0400) ||
        !raw::attach(plan.files[i].mount_fd, plan.files[i].name))
      return false;
  }
  return raw::call(SYS_chdir, "/") == 0;
}

int jailer_child(void* argument) {
  auto& plan = *static_cast<JailerPlan*>(argument);
  auto run = [&] {
    if (!internal::enter_cgroup(plan)) return false;
    plan.enter(LaunchStep::kCgroupNamespace);
    if (raw::call(SYS_unshare, CLONE_NEWCGROUP) != 0) return false;
    if (!make_root(plan) || !internal::enter_network(plan)) return false;
    plan.enter(LaunchStep::kLimits);
    raw::call(SYS_setsid);
    raw::call(SYS_umask, 077);
    if (!raw::limit(RLIMIT_CORE, 0)) return false;
    plan.enter(LaunchStep::kCapabilities);
    if (raw::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    if (!internal::arrange_descriptors(plan, plan.stdout_fd, -1)) return false;
    raw::call(SYS_prctl, PR_SET_PDEATHSIG, 0, 0, 0, 0);
    plan.enter(LaunchStep::kExec);
    if (!raw::reset_signals()) return false;
    static const char* const environment[] = {nullptr};
    raw::call(SYS_execve, plan.argv[0], plan.argv, environment);
    return false;
  };
  if (!run()) plan.error = errno;
  raw::call(SYS_exit, 1);
  return 1;
}

// One of the jail's files, as the monitor's user may use it.
Result<UniqueFd> file_mount(const JailFile& file, uint32_t uid) {
  GB_TRY(const auto fd, sys::open_fd(file.path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  struct stat st{};
  if (::fstat(fd.get(), &st) < 0) return fail_errno(file.path);
  if (!S_ISREG(st.st_mode)) return fail(Code::kInvalidPath, file.path + ": is no regular file");
  const mode_t readable = (st.st_mode & 07777) | S_IRUSR | S_IRGRP | S_IROTH;
  if (file.read_only) {
    if (readable != (st.st_mode & 07777) && ::fchmod(fd.get(), readable) < 0)
      return fail_errno(file.path);
  } else if (::fchown(fd.get(), uid, uid) < 0 || ::fchmod(fd.get(), 0600) < 0) {
    return fail_errno(file.path);
  }
  GB_TRY(auto mount, sys::clone_mount(file.path));
  if (file.read_only) GB_TRYV(sys::make_read_only(mount));
  return mount;
}

// What has been printed so far; for people.
std::string printed(int output_fd) {
  char text[2048];
  const ssize_t n = output_fd < 0 ? 0 : ::read(output_fd, text, sizeof text);
  return n > 0 ? ": " + utf8_lossy(std::string_view(text, static_cast<size_t>(n))) : "";
}

Result<void> wait_for_jailer(const sys::Spawned& jailer, Deadline deadline, int output_fd) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  const bool ended =
      sys::wait_readable(jailer.pidfd.get(), std::max(left, std::chrono::milliseconds(0)));
  if (!ended) ::kill(jailer.pid, SIGKILL);
  int status = 0;
  while (::waitpid(jailer.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) return fail(Code::kTimeout, "the jailer does not end");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(Code::kStartFailed, "the jailer failed" + printed(output_fd));
}

Result<sys::ProcessId> monitor_of(const JailerSpec& spec, int root_fd) {
  const std::string name = program_name(spec) + ".pid";
  const UniqueFd file(::openat(root_fd, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return fail_errno("the jailer's " + name);
  GB_TRY(const auto text, sys::read_fd(file.get(), 32));
  const auto pid = parse_int(text);
  const auto process = pid && *pid > 1 ? sys::identify(static_cast<pid_t>(*pid)) : std::nullopt;
  if (!process)
    return fail(Code::kStartFailed, "Firecracker ended at once" + printed(spec.output_fd));
  return *process;
}

}  // namespace

Result<std::vector<std::string>> jailer_command(const JailerSpec& spec) {
  GB_TRYV(check(spec));
  const std::string user = std::to_string(spec.uid);
  // Version 1 of cgroups, and no setting of one: then the monitor stays in the group that it is in.
  return std::vector<std::string>{spec.jailer,
                                  "--id",
                                  spec.id,
                                  "--exec-file",
                                  spec.firecracker,
                                  "--uid",
                                  user,
                                  "--gid",
                                  user,
                                  "--chroot-base-dir",
                                  spec.base,
                                  "--cgroup-version",
                                  "1",
                                  "--resource-limit",
                                  "no-file=" + std::to_string(spec.open_files),
                                  "--new-pid-ns",
                                  "--",
                                  "--api-sock",
                                  std::string("/") + kFirecrackerSocket};
}

Result<Jailed> start_jailer(const JailerSpec& spec, Deadline deadline) {
  GB_TRY(const auto words, jailer_command(spec));
  const std::string root_path = spec.base + "/" + program_name(spec) + "/" + spec.id + "/root";
  GB_TRYV(sys::make_directories(root_path, 0700));
  GB_TRY(auto root,
         sys::new_mount("tmpfs", "glovebox",
                        {{"size", kRootBytes}, {"nr_inodes", kRootInodes}, {"mode", "700"}},
                        MOUNT_ATTR_NOSUID));
  std::vector<UniqueFd> mounts;
  std::vector<RawFile> files;
  for (const auto& file : spec.files) {
    GB_TRY(auto mount, file_mount(file, spec.uid));
    files.push_back({file.name.c_str(), mount.get()});
    mounts.push_back(std::move(mount));
  }
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  GB_TRY(const auto null, sys::open_fd("/dev/null", O_RDONLY));
  JailerPlan plan;
  plan.cgroup_fds = spec.cgroup_fds.data();
  plan.cgroup_count = spec.cgroup_fds.size();
  plan.root_fd = root.get();
  plan.root_path = root_path.c_str();
  plan.files = files.data();
  plan.file_count = files.size();
  plan.stdin_fd = null.get();
  plan.stdout_fd = spec.console_fd;
  plan.netns_fd = spec.netns_fd;
  plan.argv = argv.data();
  const int namespaces =
      CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | (spec.netns_fd < 0 ? CLONE_NEWNET : 0);
  GB_TRY(const auto jailer, sys::spawn_sharing_memory(namespaces, jailer_child, &plan));
  if (plan.error != 0) {
    ::waitpid(jailer.pid, nullptr, 0);
    return fail_errno(std::string("the monitor's jail: ") + step_name(plan.step), plan.error);
  }
  GB_TRYV(wait_for_jailer(jailer, deadline, spec.output_fd));
  GB_TRY(const auto process, monitor_of(spec, root.get()));
  return Jailed{process, std::move(root)};
}

Result<UniqueFd> open_jail(const sys::ProcessId& process) {
  auto root = sys::open_fd("/proc/" + std::to_string(process.pid) + "/root", O_PATH | O_DIRECTORY);
  if (!root || !sys::is_alive(process)) return fail(Code::kSandboxEnded, "Firecracker is gone");
  return root;
}

}  // namespace glovebox::runtime::microvm
