// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/internal/launch.h"
#include "runtime/internal/storage.h"
#include "runtime/runtime.h"
#include "sys/cgroup.h"
#include "sys/pipe.h"
#include "sys/process.h"

namespace glovebox::runtime {

// Measures the steps of a start.
class StepTimer {
 public:
  void done(const char* step);
  // The steps of a child that has just called exec; the first one begins where the last step ended.
  void done(const LaunchCommon& child);
  std::vector<std::pair<std::string, std::chrono::microseconds>> take() {
    return std::move(steps_);
  }

 private:
  Clock::time_point last_ = Clock::now();
  std::vector<std::pair<std::string, std::chrono::microseconds>> steps_;
};

// What the two tiers that run as host processes have in common: a cgroup per sandbox, lasting
// pipes, a private disk, and a process whose end is the sandbox's end. The tiers differ in how that
// process is started.
//
// All mounts of a sandbox are in mount namespaces of its own processes, and its loop device clears
// itself, so killing the processes removes both. What stays by name: the cgroup (the sandbox's id),
// files in its directory, the slot file, the engine's state.
class LinuxRuntime : public Runtime {
 public:
  explicit LinuxRuntime(const HostConfig& config);

  Capability probe(const Rootfs& probe) override;
  Result<void> prepare(const Rootfs& rootfs) override;
  void forget(const Rootfs& rootfs) override;
  Result<UniqueFd> open_rootfs(const Rootfs& rootfs) override { return storage_.rootfs_copy(rootfs); }
  Record plan(const StartSpec& spec) override;
  Result<Started> start(const StartSpec& spec, const Record& planned, Deadline deadline) override;
  Result<ChannelFds> adopt(const Record& record) override;
  Result<void> freeze(const Record& record) override;
  Result<void> thaw(const Record& record) override;
  Result<Usage> usage(const Record& record) override;
  Result<UniqueFd> death_fd(const Record& record) override;
  Death death(const Record& record) override;
  Result<void> destroy(const Record& record) override;
  std::vector<std::string> sweep(const std::vector<std::string>& known) override;
  std::vector<HostObject> host_objects() override;

 protected:
  // What the tier-specific part of a start fills in.
  struct Launch {
    const StartSpec& spec;
    Record record;
    Deadline deadline;
    StepTimer timer;
    sys::LastingPipe to_agent;
    sys::LastingPipe from_agent;
    std::vector<int> cgroup_fds;
  };

  virtual sys::CgroupLimits cgroup_limits(const Limits& limits) const = 0;
  // Starts the process; records it as the sandbox's with remember_process().
  virtual Result<void> launch(Launch& launch) = 0;
  // Disk use by way of the live process.
  virtual void disk_usage(const Record& record, Usage* usage) const = 0;
  // Engine state that is not in the sandbox's directory.
  virtual Result<void> remove_engine_state(const Record& record) const = 0;
  virtual std::vector<std::string> sweep_engine_state(
      const std::vector<std::string>& known) const = 0;
  virtual std::vector<HostObject> engine_objects() const = 0;
  virtual std::string engine_log(const Record& record) const = 0;
  virtual Result<std::string> engine_version() const = 0;
  virtual std::string remedy() const = 0;

  const HostConfig& config() const { return config_; }
  const Storage& storage() const { return storage_; }
  Result<const sys::CgroupTree*> cgroups() const;
  static std::string disk_image(const std::string& directory) { return directory + "/disk.img"; }
  static sys::ProcessId process_of(const Record& record);
  static void remember_process(Record* record, const sys::ProcessId& process);
  // Process groups whose members are reaped by destroy(); see orphans.h.
  static void remember_groups(Record* record, const std::set<pid_t>& groups);
  Result<UniqueFd> private_disk(Launch& launch) const;

 private:
  Result<Started> try_start(Launch& launch);
  Result<void> make_cgroup(Launch& launch, std::vector<UniqueFd>* entries);
  Result<void> kill_all(const Record& record, const sys::CgroupTree& tree) const;
  Result<void> remove_cgroup(const Record& record, const sys::CgroupTree& tree) const;
  Result<void> wait_for_loop(const Record& record) const;
  std::vector<std::string> sweep_cgroups(const std::vector<std::string>& known);
  std::vector<std::string> sweep_loops(const std::vector<std::string>& known) const;
  std::vector<std::string> sweep_directories(const std::vector<std::string>& known) const;
  Result<void> probe_once(const Rootfs& probe, const std::string& directory,
                          Capability* capability);

  HostConfig config_;
  Storage storage_;
  Result<sys::CgroupTree> cgroups_;
};

// Sends HELLO on fresh pipes and waits for the matching SYNC and HELLO_OK (spec/channel.md).
Result<void> shake_hands(const ChannelFds& channel, const std::string& id, const Limits& limits,
                         std::chrono::milliseconds patience);

}  // namespace glovebox::runtime
