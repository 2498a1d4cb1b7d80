// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sys/process.h"

// The place of a virtual machine monitor on the host: a user of its own without capabilities and
// without a way to get any, a root directory that holds the program, what it needs to run and
// nothing else, all of that read-only; process, network, IPC, host name and cgroup namespaces of
// its own; no descriptor but those named here.
namespace glovebox::runtime::microvm {

struct JailSpec {
  std::string stage;  // an empty directory of the host to build it on; nothing stays there
  std::vector<int> cgroup_fds;     // see MachineSpec
  uint32_t uid = 0;                // and group
  std::vector<std::string> shown;  // files and directories of the host, read-only under the same
                                   // path; missing ones are left out
  std::vector<std::pair<std::string, std::string>> shown_as;  // the same, but under the second path; must be there
  std::string preload;  // a library, by its path in the jail, that the program loads first; empty: none
  uint64_t memory_bytes =
      0;  // size of the file system at kJailMemory, which is charged to the cgroup; 0: none
  bool kvm = false;  // whether there is /dev/kvm
  uint64_t open_files = 1024;
  std::vector<std::pair<int, int>> descriptors;  // ours, its number: 0 and 1 too; 2 is the log
  std::vector<std::string> argv;  // argv[0]: the program's path, in the jail as on the host
};

// In the jail: directories that the program can write to.
inline constexpr const char* kJailMemory = "/memory";
inline constexpr const char* kJailSnapshotMemory = "/snapshot/memory";  // read-only, where a machine goes on from one
inline constexpr const char* kJailLog = "/log/log";  // at most 256 KiB; what comes later is lost
inline constexpr int kJailFirstFd = 3;

// Starts the program as the first process of its own process namespace. kStartFailed names the step
// that failed.
Result<sys::ProcessId> start_jailed(const JailSpec& spec);

// The log of a live jail; the descriptor stays readable when the jail is gone. Read it with
// read_log().
Result<UniqueFd> open_log(const sys::ProcessId& process);
std::string read_log(int fd, size_t max_bytes);

// The logs of an engine's machines, by sandbox: a log outlives its jail only through its descriptor.
class KeptLogs {
 public:
  void keep(const std::string& id, UniqueFd fd);
  std::string read(const std::string& id, size_t max_bytes) const;  // empty when none is kept
  void drop(const std::string& id);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, UniqueFd> logs_;
};

// Programs with shared libraries need these.
std::vector<std::string> library_paths();

}  // namespace glovebox::runtime::microvm
