// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "programs/agent/loop.h"
#include "programs/agent/supervisor.h"

namespace glovebox::agent {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  char state = '?';
  uint64_t start_ticks = 0;
};

// /proc/<pid>/stat; nullopt when it is gone.
std::optional<Process> read_process(pid_t pid);
std::vector<Process> all_processes();
// Every descendant of `root`, without it, in no order. Zombies included.
std::vector<Process> descendants(const std::vector<Process>& processes, pid_t root);
// Sends the signal if `process` is still the same one. False when it is gone.
bool signal_process(const Process& process, int signal);
// Signals all of them, each once; a process group of which some are victims as a whole, unless it is one of `shared`: the kernel
// lets no fork slip between its members (gVisor's may). (A group belongs to one session, and every session of an execution was made inside it.)
void signal_all(const std::vector<Process>& victims, int signal, std::set<pid_t> shared = {});
// `root` and all its descendants of `processes`, in the same way; groups with others in them are signalled one by one.
void signal_with_descendants(const std::vector<Process>& processes, const Process& root, int signal);

// Sends signals to whole trees on a thread of its own: reading /proc of a fork bomb takes a while,
// and the bomb must lose.
class Killer {
 public:
  explicit Killer(Loop& loop);

  // Signals every descendant of the supervisor once; `done` runs on the loop.
  void signal_tree(Supervisor& supervisor, int signal, std::function<void()> done);
  // SIGKILL, again and again, until the supervisor has no child left. `done(true)` runs on the loop
  // then, or `done(false)` when processes that the kernel does not let die are left after kGiveUp;
  // it goes on trying.
  void kill_tree(Supervisor& supervisor, std::function<void(bool empty)> done);
  static constexpr std::chrono::milliseconds kGiveUp{3000};

 private:
  struct Job {
    Supervisor* supervisor;
    int signal;
    bool until_empty;
    std::function<void(bool)> done;
    SteadyTime next, give_up;
    std::chrono::milliseconds pause{1};
  };
  void run();
  bool work(Job& job);
  void finish(Job& job, bool empty);

  Loop& loop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Job> jobs_;
};

}  // namespace glovebox::agent
