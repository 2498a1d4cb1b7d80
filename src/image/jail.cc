// SPDX-License-Identifier: Apache-2.0
#include "image/jail.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "image/files.h"
#include "image/helper.h"

namespace glovebox::image {
namespace {

constexpr int kBodyFailed = 90;  // the body printed its error line

constexpr int kDetach = 2;  // MNT_DETACH

// mount(2) itself: <sys/mount.h> is hidden by our sys/mount.h.
int mount_call(const char* source, const char* target, const char* type, unsigned long flags,
               const void* data) {
  return static_cast<int>(::syscall(SYS_mount, source, target, type, flags, data));
}

Result<void> check(int rc, const std::string& what) {
  if (rc == 0) return {};
  return fail_errno(what);
}

Result<void> write_map(pid_t pid, const char* file) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + path);
  const std::string line = "0 " + std::to_string(kShiftedIds) + " " + std::to_string(kIdCount);
  if (::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    return fail(
        Code::kUnavailable,
        "cannot map user ids for the import (" + errno_text(errno) +
            "); the daemon must run with the host's user ids, not in a user namespace of its own");
  }
  return {};
}

// Waits for `pid`; kInternal when it was killed or failed without an error line.
Result<void> wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return fail_errno("wait");
  }
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 0)) return {};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kBodyFailed) return fail(Code::kInternal, "");
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU)) {
    return fail(Code::kPayloadTooLarge,
                "the work was stopped by its limit of processor time or memory",
                {{"limit", "cpu_seconds"}});
  }
  return fail(Code::kInternal,
              WIFSIGNALED(status)
                  ? std::string("a jailed process died: ") + ::strsignal(WTERMSIG(status))
                  : "a jailed process ended with status " + std::to_string(WEXITSTATUS(status)));
}

void print_error(const Error& error) {
  if (error.message.empty()) return;  // already printed further in
  const std::string line = error_line(error);
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

[[noreturn]] void finish(const Result<void>& result) {
  if (result) ::_exit(0);
  print_error(result.error());
  ::_exit(kBodyFailed);
}

struct SyncPipe {
  UniqueFd read, write;
  static Result<SyncPipe> make() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno("pipe");
    return SyncPipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  }
  bool wait() const {
    char c;
    return ::read(read.get(), &c, 1) == 1;
  }
  void signal() const { (void)!::write(write.get(), "x", 1); }
};

// Between the helper and process 1 of the jail: enters the namespaces and becomes root of the
// shifted ids.
Result<void> outer_process(const JailSpec& spec, const SyncPipe& entered, SyncPipe& mapped,
                           const std::function<Result<void>()>& body) {
  mapped.write.reset();
  int flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
  if (spec.has_user_namespace) flags |= CLONE_NEWUSER;
  if (!spec.has_network) flags |= CLONE_NEWNET;
  GB_TRYV(check(::unshare(flags), "make namespaces"));
  entered.signal();
  if (!mapped.wait()) return fail(Code::kInternal, "");  // the other side said why
  if (spec.has_user_namespace) {
    GB_TRYV(check(::setgroups(0, nullptr), "drop groups"));
    GB_TRYV(check(::setresgid(0, 0, 0), "set group"));
    GB_TRYV(check(::setresuid(0, 0, 0), "set user"));
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // after the change of ids, which clears it
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto ready =
        check(mount_call(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr), "make mounts private");
    finish(ready ? body() : ready);
  }
  return wait_for(pid);
}

Result<void> filter(uint32_t action, const std::vector<int>& calls) {
  scmp_filter_ctx context = ::seccomp_init(SCMP_ACT_ALLOW);
  if (context == nullptr) return fail(Code::kInternal, "seccomp_init failed");
  int rc = 0;
  for (const int call : calls) {
    if (rc == 0 && call != __NR_SCMP_ERROR) rc = ::seccomp_rule_add(context, action, call, 0);
  }
  if (rc == 0) rc = ::seccomp_load(context);
  ::seccomp_release(context);
  if (rc != 0) return fail_errno("load seccomp filter", -rc);
  return {};
}

}  // namespace

Result<void> run_in_jail(const JailSpec& spec, const std::function<Result<void>()>& body) {
  GB_TRY(auto entered, SyncPipe::make());
  GB_TRY(auto mapped, SyncPipe::make());
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    finish(outer_process(spec, entered, mapped, body));
  }
  entered.write.reset();
  Result<void> ready;
  if (entered.wait() && spec.has_user_namespace) {
    ready = write_map(pid, "uid_map");
    if (ready) ready = write_map(pid, "gid_map");
  }
  if (ready) mapped.signal();
  mapped.write.reset();
  auto ended = wait_for(pid);
  return ready ? ended : ready;
}

Result<void> mount_private_tmp() {
  return check(mount_call("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"),
               "mount /tmp");
}

Result<void> mount_own_proc() {
  return check(mount_call("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr),
               "mount /proc");
}

Result<void> only_writable(const std::vector<std::string>& directories) {
  const auto set = [](const std::string& path, uint64_t on, uint64_t off, unsigned flags) {
    struct mount_attr attributes = {};
    attributes.attr_set = on;
    attributes.attr_clr = off;
    return ::syscall(SYS_mount_setattr, AT_FDCWD, path.c_str(), flags, &attributes,
                     sizeof attributes);
  };
  for (const auto& d : directories) {
    GB_TRYV(check(mount_call(d.c_str(), d.c_str(), nullptr, MS_BIND, nullptr), "bind " + d));
  }
  // Linux 5.12; where it is missing, the build only loses this second fence.
  if (set("/", MOUNT_ATTR_RDONLY, 0, AT_RECURSIVE) != 0) {
    if (errno == ENOSYS || errno == EPERM || errno == EINVAL) return {};
    return fail_errno("make the host's files read-only");
  }
  for (const auto& d : directories)
    GB_TRYV(check(static_cast<int>(set(d, 0, MOUNT_ATTR_RDONLY, 0)), "make writable " + d));
  return {};
}

Result<UniqueFd> detach_directory(int fd) {
  UniqueFd tree(static_cast<int>(
      ::syscall(SYS_open_tree, fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)));
  if (!tree) return fail_errno("open directory as a mount");
  return tree;
}

Result<void> attach_directory(const UniqueFd& detached, const std::string& where) {
  if (::mkdir(where.c_str(), 0755) != 0 && errno != EEXIST)
    return fail_errno("make directory " + where);
  const long rc = ::syscall(SYS_move_mount, detached.get(), "", AT_FDCWD, where.c_str(),
                            MOVE_MOUNT_F_EMPTY_PATH);
  return check(static_cast<int>(rc), "mount " + where);
}

Result<void> enter_root(const UniqueFd& detached) {
  GB_TRYV(mount_private_tmp());
  GB_TRYV(attach_directory(detached, "/tmp/root"));
  GB_TRYV(check(::chdir("/tmp/root"), "enter root"));
  GB_TRYV(check(static_cast<int>(::syscall(SYS_pivot_root, ".", ".")), "pivot root"));
  GB_TRYV(check(static_cast<int>(::syscall(SYS_umount2, ".", kDetach)), "leave the host's files"));
  return check(::chdir("/"), "enter root");
}

Result<void> keep_capabilities(const std::vector<int>& capabilities) {
  GB_TRYV(check(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs"));
  uint32_t mask[2] = {0, 0};
  for (const int c : capabilities) mask[c / 32] |= 1u << (c % 32);
  for (int c = 0; ::prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; ++c) {
    if ((mask[c / 32] & (1u << (c % 32))) == 0) ::prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{mask[0], mask[0], 0}, {mask[1], mask[1], 0}};
  return check(static_cast<int>(::syscall(SYS_capset, &header, data)), "drop capabilities");
}

Result<void> limit_resource(int resource, uint64_t value) {
  struct rlimit now;
  const auto which = static_cast<__rlimit_resource>(resource);
  GB_TRYV(check(::getrlimit(which, &now), "read limit"));
  now.rlim_max = std::min<rlim_t>(now.rlim_max, value);
  now.rlim_cur = now.rlim_max;
  return check(::setrlimit(which, &now), "set limit");
}

Result<void> deny_dangerous_syscalls() {
  return filter(SCMP_ACT_ERRNO(EPERM), {SCMP_SYS(socket),
                                        SCMP_SYS(socketpair),
                                        SCMP_SYS(connect),
                                        SCMP_SYS(execve),
                                        SCMP_SYS(execveat),
                                        SCMP_SYS(mount),
                                        SCMP_SYS(umount2),
                                        SCMP_SYS(pivot_root),
                                        SCMP_SYS(chroot),
                                        SCMP_SYS(move_mount),
                                        SCMP_SYS(open_tree),
                                        SCMP_SYS(fsopen),
                                        SCMP_SYS(fsmount),
                                        SCMP_SYS(mount_setattr),
                                        SCMP_SYS(unshare),
                                        SCMP_SYS(setns),
                                        SCMP_SYS(clone),
                                        SCMP_SYS(clone3),
                                        SCMP_SYS(fork),
                                        SCMP_SYS(vfork),
                                        SCMP_SYS(ptrace),
                                        SCMP_SYS(bpf),
                                        SCMP_SYS(keyctl),
                                        SCMP_SYS(add_key),
                                        SCMP_SYS(request_key),
                                        SCMP_SYS(io_uring_setup),
                                        SCMP_SYS(perf_event_open),
                                        SCMP_SYS(userfaultfd),
                                        SCMP_SYS(init_module),
                                        SCMP_SYS(finit_module),
                                        SCMP_SYS(kexec_load),
                                        SCMP_SYS(process_vm_readv),
                                        SCMP_SYS(process_vm_writev),
                                        SCMP_SYS(open_by_handle_at),
                                        SCMP_SYS(mknod),
                                        SCMP_SYS(kill),
                                        SCMP_SYS(memfd_create),
                                        SCMP_SYS(pidfd_getfd),
                                        SCMP_SYS(ioctl)});
}

Result<void> skip_fsync() {
  return filter(SCMP_ACT_ERRNO(0), {SCMP_SYS(fsync), SCMP_SYS(fdatasync), SCMP_SYS(sync),
                                    SCMP_SYS(syncfs), SCMP_SYS(sync_file_range), SCMP_SYS(msync)});
}

}  // namespace glovebox::image
