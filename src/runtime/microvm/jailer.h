// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Firecracker's own jailer: a chroot, a user, a process namespace and a cgroup for one monitor.
namespace glovebox::runtime::microvm {

struct JailerSpec {
  std::string jailer, firecracker;  // programs, absolute; both of the same version
  std::string id;                   // 1 … 64 of [A-Za-z0-9-]
  std::string base;                 // absolute: the chroots' parent
  uint32_t uid = 0;                 // and group; never root
  std::string netns;                // a path that names the network namespace
  std::string parent_cgroup;        // version 2, relative to its mount; empty: the caller's
  uint64_t open_files = 1024;
};

// The monitor's paths, inside its root.
inline constexpr const char* kFirecrackerSocket = "/run/api.sock";
inline constexpr const char* kFirecrackerVsock = "/run/v.sock";

// What to execute. The jailer becomes the monitor's parent and ends at once (--new-pid-ns); the
// monitor's standard streams are /dev/null, as a guest decides what its console says.
Result<std::vector<std::string>> jailer_command(const JailerSpec& spec);

// The directory that the jailer makes a root of: must be there, with everything that the monitor
// opens in it, before the jailer runs.
class JailRoot {
 public:
  static Result<JailRoot> make(const JailerSpec& spec);
  const std::string& path() const { return path_; }
  // Shows a file of the host as `/<name>`, readable: linked where anyone may read it (the image
  // stays shared in the page cache) and the file systems are the same, else copied. The host's file
  // keeps its owner and mode.
  Result<void> show(const std::string& file, std::string_view name) const;
  // Links a file of the sandbox's own as `/<name>`, which the monitor's user owns from then on.
  // Never copied: what the guest writes has to arrive in `file`.
  Result<void> lend(const std::string& file, std::string_view name) const;

 private:
  JailRoot(std::string path, uint32_t uid) : path_(std::move(path)), uid_(uid) {}
  Result<std::string> place_of(std::string_view name) const;

  std::string path_;
  uint32_t uid_;
};

// Removes the jail of `id`, whose monitor is gone. What a hostile monitor left there is not
// followed. Nothing when there is none.
Result<void> remove_jail(const JailerSpec& spec);

}  // namespace glovebox::runtime::microvm
