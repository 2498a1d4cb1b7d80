// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "sys/process.h"

// Firecracker's own jailer: a root directory, a user and a process namespace for one monitor. What
// is around it is ours: the mount table in which the root directory is a small file system of its
// own that nobody else sees, the sandbox's cgroup, network, IPC and host name namespaces.
namespace glovebox::runtime::microvm {

struct JailFile {
  std::string path;  // on the host, a regular file
  std::string name;  // "/<name>" in the jail
  bool read_only = false;
};

struct JailerSpec {
  std::string jailer, firecracker;  // programs, absolute; both of the same version
  std::string id;                   // 1 … 64 of [A-Za-z0-9-]
  std::string
      base;  // an absolute path, made when missing: directories for mount points, nothing else
  uint32_t uid = 0;  // and group; never root
  uint64_t open_files = 1024;
  std::vector<int> cgroup_fds;  // see MachineSpec
  int netns_fd = -1;            // to be in; negative: an empty one
  int console_fd = -1;          // its standard output and error: what a guest prints ends up there
  int output_fd = -1;           // where that can be read, without waiting; for errors
  std::vector<JailFile> files;  // mounted, not copied
};

// The monitor's paths, inside its root.
inline constexpr const char* kFirecrackerSocket = "run/api.sock";
inline constexpr const char* kFirecrackerVsock = "run/v.sock";

// What to execute. With these words the jailer ends as soon as the monitor runs, and leaves cgroups
// alone.
Result<std::vector<std::string>> jailer_command(const JailerSpec& spec);

struct Jailed {
  sys::ProcessId process;  // the monitor: an orphan, so a child of ours if we reap orphans
  UniqueFd root;           // its root directory
};

// Starts the monitor, which waits for requests then. Files that it may write belong to its user
// from then on, the others can be read by everyone who reaches them. Errors name what the jailer
// said; what a jailer that hangs has begun is in the cgroup.
Result<Jailed> start_jailer(const JailerSpec& spec, Deadline deadline);

// The root directory of a live monitor.
Result<UniqueFd> open_jail(const sys::ProcessId& process);

}  // namespace glovebox::runtime::microvm
