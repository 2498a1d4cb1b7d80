// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "sys/process.h"

namespace glovebox::runtime {

// Reaps what an engine leaves to us while its sandbox lives. runsc keeps a host process per guest
// address space; when the parent of one of these ends, we, the subreaper, inherit it, and as a
// zombie it would count against the sandbox's process limit. The engine's process groups name them:
// no other child of this process is in one.
class OrphanReaper {
 public:
  OrphanReaper() = default;
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  // From now on, until `engine` is gone and nothing of the groups is left, or remove(). `engine`
  // itself is not reaped.
  void add(const std::string& id, const sys::ProcessId& engine, std::vector<pid_t> groups);
  void remove(const std::string& id);
  // Zombies of engines that nobody saw while they lived, such as those of a start that failed at
  // once: children of ours by an engine's name that are no sandbox's first process.
  void reap_strays();

 private:
  struct Entry {
    sys::ProcessId engine;
    std::vector<pid_t> groups;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, pid_t> engines_;  // until remove(): somebody will want their status
  std::thread thread_;
  bool stopping_ = false;
};

// Reaps every zombie child of ours in these process groups. True when none of our children is left
// in them.
bool reap_groups(const std::vector<pid_t>& groups);

}  // namespace glovebox::runtime
