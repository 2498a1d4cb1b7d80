// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/jail.h"

#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>

#include "base/sanitizers.h"

namespace glovebox::egress {
namespace {

// clang-format off: a table, in groups
[[maybe_unused]] constexpr const char* kCalls[] = {
    // sockets and pipes
    "accept4", "bind", "close", "connect", "dup", "fcntl", "getpeername", "getsockname", "getsockopt", "pipe2", "poll", "ppoll", "read",
    "readv", "recvfrom", "recvmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "splice", "write", "writev",
    // the loop
    "clock_gettime", "clock_nanosleep", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", "timerfd_create",
    "timerfd_settime",
    // memory and the process itself
    "brk", "exit", "exit_group", "futex", "getpid", "gettid", "madvise", "mmap", "mprotect", "mremap", "munmap", "restart_syscall",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_yield", "tgkill", "getrandom", "fstat", "newfstatat",
};
// clang-format on

Result<void> drop_capabilities() {
  for (unsigned long capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0;
       ++capability) {
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return fail_errno("PR_CAPBSET_DROP");
  }
  return {};
}

Result<void> clear_capability_sets() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return {};
}

Result<void> become(uid_t uid, gid_t gid) {
  if (::setgroups(0, nullptr) != 0) return fail_errno("setgroups");
  if (::setresgid(gid, gid, gid) != 0) return fail_errno("setresgid");
  if (::setresuid(uid, uid, uid) != 0) return fail_errno("setresuid");
  return {};
}

// The call is allowed when its argument number `index` is `value`.
Result<void> allow_with(scmp_filter_ctx context, int number, unsigned index, uint64_t value) {
  const scmp_arg_cmp argument{index, SCMP_CMP_MASKED_EQ, 0xFFFFFFFF, value};
  const int rc = ::seccomp_rule_add_array(context, SCMP_ACT_ALLOW, number, 1, &argument);
  if (rc < 0) return fail_errno("seccomp rule", -rc);
  return {};
}

Result<void> install_filter() {
  if (kIsSanitized) return {};
  const std::unique_ptr<void, void (*)(void*)> context(::seccomp_init(SCMP_ACT_ERRNO(EPERM)),
                                                       ::seccomp_release);
  if (!context) return fail(Code::kInternal, "seccomp_init failed");
  for (const char* name : kCalls) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number < 0) continue;  // unknown to this architecture
    if (const int rc = ::seccomp_rule_add(context.get(), SCMP_ACT_ALLOW, number, 0); rc < 0)
      return fail_errno(name, -rc);
  }
  for (const uint64_t family : {AF_INET, AF_INET6, AF_UNIX})
    GB_TRYV(allow_with(context.get(), SCMP_SYS(socket), 0, family));
  for (const uint64_t request : {FIONBIO, SIOCGIFNAME, SIOCGIFADDR})
    GB_TRYV(allow_with(context.get(), SCMP_SYS(ioctl), 1, request));
  if (const int rc = ::seccomp_load(context.get()); rc < 0) return fail_errno("seccomp_load", -rc);
  return {};
}

void limit(__rlimit_resource resource, rlim_t value) {
  const rlimit both{value, value};
  ::setrlimit(resource, &both);
}

}  // namespace

Result<void> enter_jail(const std::string& root_directory, uid_t uid, gid_t gid) {
  if (::chdir(root_directory.c_str()) != 0 || ::chroot(".") != 0)
    return fail_errno("chroot to " + root_directory);
  GB_TRYV(drop_capabilities());
  GB_TRYV(become(uid, gid));
  GB_TRYV(clear_capability_sets());
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("PR_SET_NO_NEW_PRIVS");
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  // A change of user clears it, hence here. The control stream ends, too, when the parent was gone
  // before this.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  limit(RLIMIT_CORE, 0);
  if (!kIsSanitized) limit(RLIMIT_NPROC, 0);
  return install_filter();
}

size_t raise_descriptor_limit(size_t wanted) {
  rlimit limits{wanted, wanted};
  if (::setrlimit(RLIMIT_NOFILE, &limits) == 0) return wanted;
  ::getrlimit(RLIMIT_NOFILE, &limits);
  limits.rlim_cur = std::min<rlim_t>(limits.rlim_max, wanted);
  ::setrlimit(RLIMIT_NOFILE, &limits);
  return limits.rlim_cur;
}

}  // namespace glovebox::egress
