// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "programs/attack/attack.h"

// B09: processes outside.
namespace glovebox::attack {
namespace {

bool is_in_proc(int pid) {
  return ::access(("/proc/" + std::to_string(pid)).c_str(), F_OK) == 0;
}

// The host's side watches its canary process for the signal.
Outcome signal_host_processes(const Facts& facts) {
  if (facts.pids.empty()) return not_applicable("the host told of no process");
  Tally tally;
  for (const int pid : facts.pids) {
    const bool is_seen = is_in_proc(pid);
    const bool is_another =
        is_seen && is_own_pid_namespace(facts) &&
        (facts.marker.empty() ||
         read_file("/proc/" + std::to_string(pid) + "/cmdline").find(facts.marker) ==
             std::string::npos);
    if (is_another) continue;  // the number belongs to a process of this sandbox
    if (::kill(pid, SIGUSR1) == 0)
      tally.succeed("process " + std::to_string(pid) + " of the host was signalled", false);
    else if (errno == EPERM)
      tally.succeed("process " + std::to_string(pid) + " of the host is visible (EPERM)", false);
    else
      tally.refuse(errno);
    if (::syscall(SYS_pidfd_open, pid, 0) >= 0)
      tally.succeed("a descriptor for process " + std::to_string(pid) + " of the host", false);
  }
  return tally.outcome("the numbers belong to processes of this sandbox");
}

Outcome list_processes(const Facts& facts) {
  Tally tally;
  const auto ids = process_ids();
  for (const int pid : ids) {
    const std::string line = read_file("/proc/" + std::to_string(pid) + "/cmdline");
    std::string word;
    if (!facts.marker.empty() && line.find(facts.marker) != std::string::npos)
      tally.succeed("process " + std::to_string(pid) + " is the host's", false);
    if (contains_any(line, facts.words, &word))
      tally.succeed("the arguments of process " + std::to_string(pid) + " hold " + word, false);
  }
  return ids.empty() ? Outcome{Verdict::kUndecided, "/proc lists nothing"}
                     : tally.outcome(std::to_string(ids.size()) + " processes, none of the host's");
}

bool is_thread(int id) {
  for (const int pid : process_ids()) {
    if (::access(("/proc/" + std::to_string(pid) + "/task/" + std::to_string(id)).c_str(), F_OK) ==
        0)
      return true;
  }
  return false;
}

// Every number there can be: whoever answers and does not stand in /proc is hidden, not absent.
Outcome probe_all_pids(const Facts& facts) {
  int answered = 0;
  const int last = is_own_kernel(facts) ? 4096 : 65536;
  for (int pid = 1; pid <= last; ++pid) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) continue;
    ++answered;
    if (!is_in_proc(pid) && !is_thread(pid) && (::kill(pid, 0) == 0 || errno != ESRCH)) {
      return got_through("process " + std::to_string(pid) + " answers and is not in /proc");
    }
  }
  if (!is_own_pid_namespace(facts))
    return got_through(std::to_string(answered) + " processes answer in the host's pid namespace");
  return refused(std::to_string(answered) + " of the first " + std::to_string(last) +
                 " numbers answer, each a process of this sandbox");
}

}  // namespace

std::vector<Attempt> process_attempts() {
  return {{"B09", "signal_host_processes", signal_host_processes},
          {"B09", "list_processes", list_processes},
          {"B09", "probe_all_pids", probe_all_pids}};
}

}  // namespace glovebox::attack
