// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "programs/agent/freezer.h"

// Every execution runs below a *supervisor*: a child process of the agent that is a child
// subreaper, so whatever the execution forks, however often and with whatever session, stays its
// descendant and is reaped by it. A supervisor shares the agent's memory and descriptors (clone
// with CLONE_VM and CLONE_FILES), which makes it as cheap as a thread, and it is used again for the
// next execution when its tree is empty.
namespace glovebox::agent {

enum class LaunchStep : int {
  kFork,
  kSession,
  kTerminal,
  kDescriptors,
  kLimits,
  kUser,
  kDirectory,
  kExecute
};

// What the new process shall become. Plain pointers into memory that the agent keeps until the
// launch is answered.
struct Launch {
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  const char* const* candidates = nullptr;  // paths to try in order, null at the end
  const char* directory = nullptr;
  bool directory_is_default = false;  // then "/" does when it cannot be entered
  uid_t uid = 0;
  gid_t gid = 0;
  const gid_t* groups = nullptr;
  size_t group_count = 0;
  int stdio[3] = {-1, -1, -1};  // all above 2
  bool terminal = false;        // stdio[0] becomes the controlling terminal
  bool set_processes = false;
  rlimit64 open_files = {};
  rlimit64 processes = {};
  std::string_view oom_score;  // for /proc/self/oom_score_adj; empty: as the agent's
  // Answer, valid from Phase::kFailed.
  LaunchStep failed_step = LaunchStep::kFork;
  int failed_errno = 0;
};

enum class Phase : uint32_t { kIdle, kLaunching, kFailed, kRunning, kEnded, kGone };

class Supervisors;
static_assert(sizeof(std::atomic<pid_t>) == sizeof(pid_t));

// Written by its process, read by the agent; `phase` is the publication point of everything else.
struct Supervisor {
  pid_t pid = 0;
  std::atomic<uint32_t> bell{0};  // futex: 0 nothing, 1 launch, 2 exit
  std::atomic<Phase> phase{Phase::kIdle};
  Launch* launch = nullptr;
  std::atomic<pid_t> main_pid{0};  // the kernel stores it before the process runs
  int wait_status = 0;             // from kEnded
  struct rusage usage = {};        // from kEnded
  bool had_children = false;       // other processes lived when the main one ended
  int kill_jobs = 0;      // agent only: not handed out again while the killer looks at its tree
  bool released = false;  // agent only
  bool dead = false;      // agent only: its process was killed from inside the sandbox
  void* owner = nullptr;  // agent only: the execution

  std::atomic<bool> queued{false};
  Supervisor* next_event = nullptr;
  Supervisors* pool = nullptr;
  void* stack = nullptr;
};

class Supervisors {
 public:
  explicit Supervisors(Freezer freezer = {});  // new ones enter its group
  Supervisors(const Supervisors&) =
      delete;  // the processes point to it, for as long as the agent lives

  // Readable when drain() has something to say.
  int event_fd() const { return event_fd_; }
  // Calls `handle` for each supervisor whose phase has changed.
  void drain(const std::function<void(Supervisor&)>& handle);

  // An idle one, or a new one: kProcessLimit, kMemoryLimit.
  Result<Supervisor*> acquire();
  // Starts the launch; the answer comes as an event.
  void start(Supervisor& supervisor, Launch* launch);
  // Gives back a supervisor in kFailed or kGone.
  void release(Supervisor& supervisor);
  // Makes the spare one when there is none, so that the next acquire() is free. Call when there is
  // nothing better to do.
  void keep_spare();

  Supervisor* find(pid_t pid);
  // Its process has died: forgets it, or as soon as the killer lets go of it. Call drain() before.
  void bury(Supervisor& supervisor);
  std::vector<pid_t> pids() const;
  bool is_supervisor(pid_t pid) const { return all_.contains(pid); }

 private:
  friend int supervise(void* argument);
  Result<Supervisor*> create();
  void notify(Supervisor& supervisor);

  Freezer freezer_;
  int event_fd_ = -1;
  std::string oom_score_;
  std::atomic<Supervisor*> events_{nullptr};
  std::vector<Supervisor*> idle_;
  std::unordered_map<pid_t, std::unique_ptr<Supervisor>> all_;
};

// The error of a launch that failed, named after what the caller asked for.
Error launch_error(const Launch& launch);

}  // namespace glovebox::agent
