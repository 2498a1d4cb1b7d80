// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace glovebox::agent {

// Whether this is process 1 of a kernel of its own: its counters then speak of this sandbox only.
bool owns_kernel();

// What the kernel has counted in `vmstat_path` (/proc/vmstat) as killed for want of memory; 0 where
// it does not count.
uint64_t oom_kills(const std::string& vmstat_path);

// Tells whether the OOM killer ran since the last time it was asked. The host sees nothing of it
// when it happens in a kernel of our own.
class OomWatch {
 public:
  OomWatch(bool is_active, std::string vmstat_path);
  bool has_killed();

 private:
  bool is_active_;
  std::string vmstat_path_;
  uint64_t seen_ = 0;
};

}  // namespace glovebox::agent
