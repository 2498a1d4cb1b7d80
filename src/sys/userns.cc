// SPDX-License-Identifier: Apache-2.0
#include "sys/userns.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::sys {
namespace {

struct Plan {
  uint32_t base = 0;
  char* inner_stack_top = nullptr;
  pid_t daemon = 0;
  pid_t holder = 0;
  int error = 0;
};

// The namespace's first process: lives until we kill it, or until the daemon dies. It holds copies
// of all our descriptors, so it must not wait for the end of a pipe that another thread's holder
// may keep open.
int hold_namespace(void* argument) {
  const auto* plan = static_cast<const Plan*>(argument);
  ::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (::syscall(SYS_getppid) != plan->daemon) ::syscall(SYS_exit, 0);  // it died before that call
  for (;;) ::syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
}

// Raw system calls: the library's setresuid() would change every thread of the daemon.
int create_namespace(void* argument) {
  auto* plan = static_cast<Plan*>(argument);
  if (::syscall(SYS_setresgid, -1, plan->base, -1) < 0 ||
      ::syscall(SYS_setresuid, -1, plan->base, -1) < 0) {
    plan->error = errno;
    ::syscall(SYS_exit, 1);
  }
  // Hosts that forbid user namespaces to ordinary users still allow them with CAP_SYS_ADMIN, which
  // is permitted yet, not effective.
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  ::syscall(SYS_capget, &header, data);
  data[0].effective = data[0].permitted;
  data[1].effective = data[1].permitted;
  ::syscall(SYS_capset, &header, data);
  plan->holder = ::clone(hold_namespace, plan->inner_stack_top,
                         CLONE_NEWUSER | CLONE_VM | CLONE_PARENT | SIGCHLD, plan);
  if (plan->holder < 0) plan->error = errno;
  ::syscall(SYS_exit, 0);
  return 0;
}

Result<UniqueFd> map_and_open(pid_t holder, uint32_t base, uint32_t count) {
  std::string proc = "/proc/" + std::to_string(holder);
  std::string map = "0 " + std::to_string(base) + " " + std::to_string(count);
  GB_TRYV(write_file(proc + "/uid_map", map));
  GB_TRYV(write_file(proc + "/gid_map", map));
  return open_fd(proc + "/ns/user", O_RDONLY);
}

}  // namespace

Result<UniqueFd> make_user_namespace(uint32_t base, uint32_t count) {
  alignas(16) char stack[16384];
  Plan plan{base, stack + sizeof stack, ::getpid(), 0, 0};
  GB_TRY(auto creator, spawn_sharing_memory(0, create_namespace, &plan));
  ::waitpid(creator.pid, nullptr, 0);
  if (plan.error != 0) return fail_errno("create user namespace", plan.error);
  auto space = map_and_open(plan.holder, base, count);
  ::kill(plan.holder, SIGKILL);
  ::waitpid(plan.holder, nullptr, 0);  // before `stack` goes
  return space;
}

}  // namespace glovebox::sys
