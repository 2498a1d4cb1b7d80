// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/supervisor.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/unique_fd.h"
#include "programs/agent/privilege.h"
#include "programs/agent/rawcall.h"

namespace glovebox::agent {
namespace {

constexpr size_t kStackBytes =
    64 * 1024;  // upper half: the supervisor; lower half: its child until execve
constexpr size_t kMaxIdle = 8;
constexpr size_t kKernelSignalSetBytes = 8;
constexpr char kOomScoreFile[] = "/proc/self/oom_score_adj";
constexpr int kOomPreference = 500;  // half of all memory: far more than the agent can ever weigh
constexpr int kMaxOomScore = 1000;   // Documentation/filesystems/proc.rst, section 3.1

// ---- In the child, between clone and execve: raw calls only. ----

bool step(Launch& launch, LaunchStep at, long result) {
  if (result >= 0) return true;
  launch.failed_step = at;
  launch.failed_errno = static_cast<int>(-result);
  return false;
}

bool take_descriptors(Launch& launch) {
  for (int fd = 0; fd < 3; ++fd) {
    if (!step(launch, LaunchStep::kDescriptors, raw(SYS_dup3, launch.stdio[fd], fd, 0))) {
      return false;
    }
  }
  return true;
}

bool set_limits(Launch& launch) {
  if (!step(launch, LaunchStep::kLimits,
            raw(SYS_prlimit64, 0, RLIMIT_NOFILE, raw_arg(&launch.open_files)))) {
    return false;
  }
  if (!launch.set_processes) return true;
  return step(launch, LaunchStep::kLimits,
              raw(SYS_prlimit64, 0, RLIMIT_NPROC, raw_arg(&launch.processes)));
}

// When the sandbox is out of memory, the kernel shall kill something of an execution's and not the
// agent, which many small processes would otherwise bring down. Where the kernel refuses, size
// alone decides. A process made with CLONE_VFORK has a score of its own, although it shares the
// agent's memory.
void offer_to_oom_killer(const Launch& launch) {
  if (launch.oom_score.empty()) return;
  const long fd = raw(SYS_openat, AT_FDCWD, raw_arg(kOomScoreFile), O_WRONLY | O_CLOEXEC, 0);
  if (fd < 0) return;
  raw(SYS_write, fd, raw_arg(launch.oom_score.data()), static_cast<long>(launch.oom_score.size()));
  raw(SYS_close, fd);
}

bool become_user(Launch& launch) {
  const auto count = static_cast<long>(launch.group_count);
  return step(launch, LaunchStep::kUser, raw(SYS_setgroups, count, raw_arg(launch.groups))) &&
         step(launch, LaunchStep::kUser, raw(SYS_setresgid, launch.gid, launch.gid, launch.gid)) &&
         step(launch, LaunchStep::kUser, raw(SYS_setresuid, launch.uid, launch.uid, launch.uid));
}

bool enter_directory(Launch& launch) {
  const long entered = raw(SYS_chdir, raw_arg(launch.directory));
  if (entered < 0 && launch.directory_is_default) {
    return step(launch, LaunchStep::kDirectory, raw(SYS_chdir, raw_arg("/")));
  }
  return step(launch, LaunchStep::kDirectory, entered);
}

// Returns only on failure: as execvp(3), a name that may not be executed outweighs one that is not
// there.
void execute(Launch& launch) {
  long worst = -ENOENT;
  for (const char* const* path = launch.candidates; *path != nullptr; ++path) {
    const long result = raw(SYS_execve, raw_arg(*path), raw_arg(launch.argv), raw_arg(launch.envp));
    if (result == -ENOENT || result == -ENOTDIR) continue;
    worst = result;
    if (result != -EACCES) break;
  }
  step(launch, LaunchStep::kExecute, worst);
}

int run_child(void* argument) {
  auto& launch = *static_cast<Launch*>(argument);
  offer_to_oom_killer(launch);
  const bool ready =
      step(launch, LaunchStep::kSession, raw(SYS_setsid)) && take_descriptors(launch) &&
      (!launch.terminal || step(launch, LaunchStep::kTerminal, raw(SYS_ioctl, 0, TIOCSCTTY, 0))) &&
      set_limits(launch) && become_user(launch) && enter_directory(launch);
  if (!ready) return 127;
  raw(SYS_umask, 022);
  const uint64_t none = 0;
  raw(SYS_rt_sigprocmask, SIG_SETMASK, raw_arg(&none), 0, kKernelSignalSetBytes);
  execute(launch);
  return 127;
}

// ---- In the supervisor: raw calls only. ----

long wait_any(int* status, struct rusage* usage, int options) {
  for (;;) {
    const long pid = raw(SYS_wait4, -1, raw_arg(status), options | __WALL, raw_arg(usage));
    if (pid != -EINTR) return pid;
  }
}

// True when processes are left.
bool reap_finished() {
  for (;;) {
    int status = 0;
    const long pid = wait_any(&status, nullptr, WNOHANG);
    if (pid <= 0) return pid == 0;
  }
}

long launch_main(Supervisor& self) {
  char* const stack_top = static_cast<char*>(self.stack) + kStackBytes / 2;
  const long pid =
      glovebox_raw_clone(CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD, stack_top,
                         &run_child, self.launch, reinterpret_cast<int*>(&self.main_pid));
  if (pid < 0) step(*self.launch, LaunchStep::kFork, pid);
  return pid;
}

void wait_for_bell(Supervisor& self) {
  while (self.bell.load(std::memory_order_acquire) == 0) {
    raw(SYS_futex, raw_arg(&self.bell), FUTEX_WAIT_PRIVATE, 0, 0);
  }
}

// The score that executions get: the agent's own, and more.
std::string execution_oom_score() {
  const UniqueFd file(::open(kOomScoreFile, O_RDONLY | O_CLOEXEC));
  char text[16] = {};
  if (!file || ::read(file.get(), text, sizeof text - 1) <= 0) return {};
  return std::to_string(std::min(std::atoi(text) + kOomPreference, kMaxOomScore));
}

}  // namespace

void Supervisors::notify(Supervisor& supervisor) {
  if (supervisor.queued.exchange(true)) return;
  Supervisor* head = events_.load(std::memory_order_relaxed);
  do {
    supervisor.next_event = head;
  } while (!events_.compare_exchange_weak(head, &supervisor, std::memory_order_release,
                                          std::memory_order_relaxed));
  const uint64_t one = 1;
  raw(SYS_write, event_fd_, raw_arg(&one), sizeof one);
}

int supervise(void* argument) {
  auto& self = *static_cast<Supervisor*>(argument);
  raw(SYS_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  raw(SYS_prctl, PR_SET_NAME, raw_arg("supervisor"), 0, 0, 0);
  self.pool->freezer_.enter();
  give_up_privilege();
  auto publish = [&self](Phase phase) {
    self.phase.store(phase, std::memory_order_release);
    self.pool->notify(self);
  };
  for (;;) {
    wait_for_bell(self);
    if (self.bell.exchange(0, std::memory_order_acq_rel) == 2) return 0;
    const long main_pid = launch_main(self);
    if (main_pid < 0 || self.launch->failed_errno != 0) {
      while (wait_any(nullptr, nullptr, 0) > 0) {
      }
      publish(Phase::kFailed);
      continue;
    }
    publish(Phase::kRunning);
    for (;;) {
      int status = 0;
      struct rusage usage = {};
      const long pid = wait_any(&status, &usage, 0);
      if (pid < 0) break;
      if (pid != main_pid) continue;
      self.wait_status = status;
      self.usage = usage;
      self.had_children = reap_finished();
      if (!self.had_children) break;
      publish(Phase::kEnded);
    }
    publish(Phase::kGone);
  }
}

Supervisors::Supervisors(Freezer freezer) : freezer_(freezer), oom_score_(execution_oom_score()) {
  event_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void Supervisors::drain(const std::function<void(Supervisor&)>& handle) {
  uint64_t count = 0;
  raw(SYS_read, event_fd_, raw_arg(&count), sizeof count);
  Supervisor* event = events_.exchange(nullptr, std::memory_order_acquire);
  while (event != nullptr) {
    Supervisor& supervisor = *event;
    event = event->next_event;
    supervisor.queued.store(false);  // from here on a change is a new event
    handle(supervisor);
  }
}

Result<Supervisor*> Supervisors::create() {
  void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return fail(Code::kMemoryLimit, "no memory for a supervisor");
  auto supervisor = std::make_unique<Supervisor>();
  supervisor->stack = stack;
  supervisor->pool = this;
  // All signals blocked: only SIGKILL and SIGSTOP can reach it, and the agent answers those.
  const uint64_t all = ~0ull;
  uint64_t before = 0;
  raw(SYS_rt_sigprocmask, SIG_SETMASK, raw_arg(&all), raw_arg(&before), kKernelSignalSetBytes);
  const long pid =
      glovebox_raw_clone(CLONE_VM | CLONE_FILES | SIGCHLD, static_cast<char*>(stack) + kStackBytes,
                         &supervise, supervisor.get(), nullptr);
  raw(SYS_rt_sigprocmask, SIG_SETMASK, raw_arg(&before), 0, kKernelSignalSetBytes);
  if (pid < 0) {
    ::munmap(stack, kStackBytes);
    return fail_errno("cannot make a process", static_cast<int>(-pid));
  }
  supervisor->pid = static_cast<pid_t>(pid);
  Supervisor* result = supervisor.get();
  all_.emplace(result->pid, std::move(supervisor));
  return result;
}

Result<Supervisor*> Supervisors::acquire() {
  if (idle_.empty()) return create();
  Supervisor* supervisor = idle_.back();
  idle_.pop_back();
  return supervisor;
}

void Supervisors::keep_spare() {
  if (!idle_.empty()) return;
  auto spare = create();
  if (spare) idle_.push_back(*spare);
}

void Supervisors::start(Supervisor& supervisor, Launch* launch) {
  launch->oom_score = oom_score_;
  supervisor.launch = launch;
  supervisor.main_pid.store(0);
  supervisor.phase.store(Phase::kLaunching);
  supervisor.released = false;
  supervisor.bell.store(1, std::memory_order_release);
  raw(SYS_futex, raw_arg(&supervisor.bell), FUTEX_WAKE_PRIVATE, 1);
}

void Supervisors::release(Supervisor& supervisor) {
  supervisor.released = true;
  supervisor.owner = nullptr;
  if (supervisor.kill_jobs > 0) return;  // released again when the killer is done
  if (supervisor.dead) return bury(supervisor);
  supervisor.phase.store(Phase::kIdle);
  if (idle_.size() < kMaxIdle) {
    idle_.push_back(&supervisor);
    return;
  }
  supervisor.bell.store(2, std::memory_order_release);
  raw(SYS_futex, raw_arg(&supervisor.bell), FUTEX_WAKE_PRIVATE, 1);
}

Supervisor* Supervisors::find(pid_t pid) {
  auto found = all_.find(pid);
  return found == all_.end() ? nullptr : found->second.get();
}

std::vector<pid_t> Supervisors::pids() const {
  std::vector<pid_t> out;
  for (const auto& [pid, supervisor] : all_) out.push_back(pid);
  return out;
}

void Supervisors::bury(Supervisor& supervisor) {
  std::erase(idle_, &supervisor);
  supervisor.dead = true;
  supervisor.released = true;
  supervisor.phase.store(Phase::kGone);
  if (supervisor.kill_jobs > 0) return;
  ::munmap(supervisor.stack, kStackBytes);
  all_.erase(supervisor.pid);
}

Error launch_error(const Launch& launch) {
  const int error = launch.failed_errno;
  const std::string why = errno_text(error);
  auto general = [&](const std::string& what) {
    Code code = errno_code(error);
    if (error == ENFILE) code = Code::kOpenFileLimit;
    return Error{code, what + ": " + why, {}};
  };
  switch (launch.failed_step) {
    case LaunchStep::kFork:
      return general("cannot make a process");
    case LaunchStep::kDirectory:
      if (error == ENOENT || error == ENOTDIR) {
        return Error{Code::kWorkdirNotFound,
                     "working directory " + std::string(launch.directory) + ": " + why,
                     {}};
      }
      return general("working directory " + std::string(launch.directory));
    case LaunchStep::kExecute:
      break;
    default:
      return general("cannot prepare the process (step " +
                     std::to_string(static_cast<int>(launch.failed_step)) + ")");
  }
  const std::string what = launch.argv[0] + (": " + why);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return Error{Code::kCommandNotFound, what, {}};
    case EACCES:
    case EPERM:
    case ENOEXEC:
    case EISDIR:
    case EINVAL:
    case ELIBBAD:
    case ETXTBSY:
      return Error{Code::kCommandNotExecutable, what, {}};
    default:
      return Error{errno_code(error), what, {}};
  }
}

}  // namespace glovebox::agent
