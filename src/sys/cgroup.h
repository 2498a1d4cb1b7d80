// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// The cgroups of one daemon instance: one group per sandbox at <mount>/<parent>/<name>, in cgroup
// v2, or in the v1 hierarchies memory, pids, cpu, cpuacct and freezer where those own the
// controllers.
namespace glovebox::sys {

struct CgroupLimits {
  double cpus = 1;
  uint64_t memory_bytes = 0;
  uint64_t processes = 0;
  bool kill_as_one =
      false;  // out of memory ends every process of the group (v2 only; v1 picks one)
};

struct CgroupUsage {
  uint64_t cpu_us = 0;
  uint64_t throttled_us = 0;
  uint64_t memory_bytes = 0;
  uint64_t memory_peak_bytes = 0;
  uint64_t processes = 0;
  uint64_t oom_kills = 0;
};

class CgroupTree {
 public:
  // Looks at the mount table for what can be used. `parent` is a relative path,
  // "glovebox/1a2b3c4d".
  static Result<CgroupTree> detect(const std::string& parent);
  // For tests: `mounts` maps controller -> mount point; "unified" for v2.
  CgroupTree(std::map<std::string, std::string> mounts, std::string parent);

  int version() const { return mounts_.contains("unified") ? 2 : 1; }

  // An existing group is reused with the new limits.
  Result<void> create(const std::string& name, const CgroupLimits& limits) const;
  // Files to which a process that has only one thread writes "0" to enter the group, opened for
  // writing.
  Result<std::vector<UniqueFd>> entries(const std::string& name) const;

  // Return when the kernel confirms it. A group that does not exist: kNotFound.
  Result<void> freeze(const std::string& name) const;
  Result<void> thaw(const std::string& name) const;
  Result<bool> is_frozen(const std::string& name) const;

  Result<CgroupUsage> usage(const std::string& name) const;
  std::vector<pid_t> processes(const std::string& name) const;
  bool exists(const std::string& name) const;

  // One round of SIGKILL for everything in the group, frozen or not. True when the group is empty.
  bool kill_once(const std::string& name) const;
  // Removes the (empty) group from every hierarchy; waits for the last process to leave it, at most
  // `patience`.
  Result<void> remove(const std::string& name, std::chrono::milliseconds patience) const;
  // Removes the parents too when nothing is left in them.
  void remove_parents() const;

  std::vector<std::string> names() const;  // groups of this instance, each once

 private:
  std::string directory(const std::string& controller, const std::string& name) const;
  Result<void> prepare_parent(const std::string& mount) const;
  Result<void> limit_v1(const std::string& name, const CgroupLimits& limits) const;
  Result<void> limit_v2(const std::string& name, const CgroupLimits& limits) const;
  Result<void> set_frozen(const std::string& name, bool frozen) const;

  std::map<std::string, std::string> mounts_;
  std::string parent_;
};

}  // namespace glovebox::sys
