// SPDX-License-Identifier: Apache-2.0
#include "sys/seccomp.h"

#include <asm/termbits.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>

#include "base/unique_fd.h"

namespace glovebox::sys {
namespace {

// clang-format off: a table, in groups
// A name that this architecture or library does not know is skipped.
constexpr const char* kAllowed[] = {
    // files and directories
    "access", "chdir", "chmod", "chown", "chroot", "close", "close_range", "copy_file_range", "creat", "dup", "dup2",
    "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
    "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr", "fsetxattr", "fstat",
    "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "getxattrat", "inotify_add_watch",
    "inotify_init", "inotify_init1", "inotify_rm_watch", "fanotify_mark", "ioctl", "lchown", "lgetxattr", "link",
    "linkat", "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod",
    "mknodat", "newfstatat", "open", "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev",
    "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "removexattr", "removexattrat", "rename", "renameat",
    "renameat2", "rmdir", "sendfile", "setxattr", "setxattrat", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync",
    "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes",
    "vmsplice", "write", "writev",
    // processes and threads
    "arch_prctl", "capget", "capset", "clone", "execve", "execveat", "exit", "exit_group", "fork", "get_robust_list",
    "get_thread_area", "getcpu", "getegid", "geteuid", "getgid", "getgroups", "getitimer", "getpgid", "getpgrp",
    "getpid", "getppid", "getpriority", "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid",
    "getuid", "ioprio_get", "ioprio_set", "kcmp", "kill", "membarrier", "personality", "pidfd_getfd", "pidfd_open",
    "pidfd_send_signal", "prctl", "prlimit64", "process_madvise", "process_mrelease", "process_vm_readv",
    "process_vm_writev", "ptrace", "rseq", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
    "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
    "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid",
    "setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setuid", "tgkill",
    "tkill", "times", "vfork", "wait4", "waitid", "waitpid", "map_shadow_stack",
    // memory
    "brk", "cachestat", "get_mempolicy", "madvise", "memfd_create", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect",
    "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
    // signals, time, waiting
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1", "epoll_ctl",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "futex", "futex_requeue", "futex_wait", "futex_waitv",
    "futex_wake", "gettimeofday", "nanosleep", "pause", "poll", "ppoll", "pselect6", "restart_syscall", "rt_sigaction",
    "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_tgsigqueueinfo", "select", "sigaltstack", "signalfd", "signalfd4", "time", "timer_create", "timer_delete",
    "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    // talking to each other and to the network
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "mq_getsetattr",
    "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
    "pipe", "pipe2", "recvfrom", "recvmmsg", "recvmsg", "semctl", "semget", "semop", "semtimedop", "sendmmsg",
    "sendmsg", "sendto", "setsockopt", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "socket", "socketpair",
    // the system
    "getrandom", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "sysinfo", "uname",
};
// clang-format on

// Known, and no business of a sandbox: EPERM rather than ENOSYS tells the caller that asking
// differently will not help.
const std::vector<std::string>& refused() {
  static const std::vector<std::string> names = {"acct",
                                                 "add_key",
                                                 "adjtimex",
                                                 "bpf",
                                                 "clock_adjtime",
                                                 "clock_settime",
                                                 "create_module",
                                                 "delete_module",
                                                 "fanotify_init",
                                                 "finit_module",
                                                 "fsconfig",
                                                 "fsmount",
                                                 "fsopen",
                                                 "fspick",
                                                 "get_kernel_syms",
                                                 "init_module",
                                                 "io_uring_enter",
                                                 "io_uring_register",
                                                 "io_uring_setup",
                                                 "ioperm",
                                                 "iopl",
                                                 "kexec_file_load",
                                                 "kexec_load",
                                                 "keyctl",
                                                 "lookup_dcookie",
                                                 "lsm_set_self_attr",
                                                 "mbind",
                                                 "migrate_pages",
                                                 "mount",
                                                 "mount_setattr",
                                                 "move_mount",
                                                 "move_pages",
                                                 "name_to_handle_at",
                                                 "nfsservctl",
                                                 "open_by_handle_at",
                                                 "open_tree",
                                                 "perf_event_open",
                                                 "pivot_root",
                                                 "query_module",
                                                 "quotactl",
                                                 "quotactl_fd",
                                                 "reboot",
                                                 "request_key",
                                                 "set_mempolicy",
                                                 "set_mempolicy_home_node",
                                                 "setdomainname",
                                                 "sethostname",
                                                 "setns",
                                                 "settimeofday",
                                                 "swapoff",
                                                 "swapon",
                                                 "sysfs",
                                                 "syslog",
                                                 "umount",
                                                 "umount2",
                                                 "unshare",
                                                 "uselib",
                                                 "userfaultfd",
                                                 "ustat",
                                                 "vhangup",
                                                 "vm86",
                                                 "vm86old"};
  return names;
}

Result<void> add_rule(scmp_filter_ctx context, const char* name, uint32_t action) {
  int number = ::seccomp_syscall_resolve_name(name);
  if (number < 0) return {};
  int rc = ::seccomp_rule_add(context, action, number, 0);
  if (rc == 0 || rc == -EDOM) return {};
  return fail_errno(std::string("seccomp rule ") + name, -rc);
}

Result<std::vector<sock_filter>> export_program(scmp_filter_ctx context) {
  UniqueFd file(static_cast<int>(::syscall(SYS_memfd_create, "seccomp", MFD_CLOEXEC)));
  if (!file) return fail_errno("memfd_create");
  if (int rc = ::seccomp_export_bpf(context, file.get()); rc < 0)
    return fail_errno("seccomp_export_bpf", -rc);
  off_t size = ::lseek(file.get(), 0, SEEK_END);
  std::vector<sock_filter> program(static_cast<size_t>(size) / sizeof(sock_filter));
  if (size <= 0 || ::pread(file.get(), program.data(), static_cast<size_t>(size), 0) != size) {
    return fail(Code::kInternal, "seccomp program could not be read back");
  }
  return program;
}

Result<std::vector<sock_filter>> compile_calls() {
  std::unique_ptr<void, void (*)(void*)> context(::seccomp_init(SCMP_ACT_ERRNO(ENOSYS)),
                                                 ::seccomp_release);
  if (!context) return fail(Code::kInternal, "seccomp_init failed");
  // 32-bit and x32 entry points have other numbers and other bugs.
  ::seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
  ::seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE,
                     2);  // a binary tree instead of a chain
  for (const char* name : kAllowed) GB_TRYV(add_rule(context.get(), name, SCMP_ACT_ALLOW));
  for (const auto& name : refused())
    GB_TRYV(add_rule(context.get(), name.c_str(), SCMP_ACT_ERRNO(EPERM)));
  return export_program(context.get());
}

constexpr uint32_t kNamespaceFlags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |
                                     0x80 /* CLONE_NEWTIME */;

// Written by hand, since libseccomp cannot say "not one of"; and on the low words only, as the
// kernel cuts these arguments to 32 bits.
class Arguments {
 public:
  std::vector<sock_filter> build() {
    load(offsetof(seccomp_data, nr));
    call(SYS_ioctl, {argument(1), refuse_if(TIOCSTI, EPERM), refuse_if(TIOCLINUX, EPERM)});
    call(SYS_clone, {argument(0), {test(BPF_JSET, kNamespaceFlags, 0, 1), answer(EPERM)}});
    call(SYS_socket, socket_rules());
    call(SYS_socketpair, socket_rules());
    program_.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    return program_;
  }

 private:
  using Code = std::vector<sock_filter>;

  static sock_filter test(uint16_t op, uint32_t value, uint8_t yes, uint8_t no) {
    return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | op | BPF_K), value, yes, no);
  }
  static sock_filter answer(uint32_t error) {
    return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
  }
  static sock_filter allow() { return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }
  static sock_filter load_word(size_t offset) {
    return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
  }
  static Code argument(int index) {  // little-endian machines only
    return {load_word(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(index))};
  }
  static Code refuse_if(uint32_t value, uint32_t error) {
    return {test(BPF_JEQ, value, 0, 1), answer(error)};
  }
  static Code allow_if(uint32_t value) { return {test(BPF_JEQ, value, 0, 1), allow()}; }

  static std::vector<Code> socket_rules() {
    return {argument(0),
            allow_if(AF_UNIX),
            allow_if(AF_INET),
            allow_if(AF_INET6),
            {test(BPF_JEQ, AF_NETLINK, 1, 0), answer(EAFNOSUPPORT)},
            argument(2),
            allow_if(NETLINK_ROUTE),
            {answer(EPROTONOSUPPORT)}};
  }

  void load(size_t offset) { program_.push_back(load_word(offset)); }
  // if (nr == number) { body; allow }
  void call(uint32_t number, const std::vector<Code>& parts) {
    Code body;
    for (const auto& part : parts) body.insert(body.end(), part.begin(), part.end());
    body.push_back(allow());
    program_.push_back(test(BPF_JEQ, number, 0, static_cast<uint8_t>(body.size())));
    program_.insert(program_.end(), body.begin(), body.end());
  }

  Code program_;
};

Result<SandboxFilter> compile() {
  GB_TRY(auto calls, compile_calls());
  return SandboxFilter{std::move(calls), Arguments().build()};
}

}  // namespace

const Result<SandboxFilter>& sandbox_filter() {
  static const Result<SandboxFilter> filter = compile();
  return filter;
}

const std::vector<std::string>& refused_calls() {
  return refused();
}

}  // namespace glovebox::sys
