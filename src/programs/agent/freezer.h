// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "programs/agent/rawcall.h"

namespace glovebox::agent {

// Where the agent's kernel is the sandbox's own (microvm), all that is not the agent is in a cgroup
// (v2), whose files init has opened. In a copy of that kernel nothing of the sandbox may run before
// its random numbers, its clock and its addresses are the copy's own. Elsewhere this does nothing.
class Freezer {
 public:
  Freezer() = default;
  Freezer(int procs_fd, int freeze_fd) : procs_fd_(procs_fd), freeze_fd_(freeze_fd) {}

  bool works() const { return procs_fd_ >= 0 && freeze_fd_ >= 0; }
  // For the calling process and all that comes of it. Raw calls only.
  void enter() const {
    if (procs_fd_ >= 0) raw(SYS_write, procs_fd_, raw_arg("0"), 1);
  }
  // All in the group but those that are in a system call that cannot be left, which do not come
  // back from it.
  void stop() const { set('1'); }
  void go_on() const { set('0'); }

 private:
  void set(char state) const {
    if (freeze_fd_ >= 0) raw(SYS_pwrite64, freeze_fd_, raw_arg(&state), 1, 0);
  }

  int procs_fd_ = -1, freeze_fd_ = -1;
};

}  // namespace glovebox::agent
