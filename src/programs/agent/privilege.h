// SPDX-License-Identifier: Apache-2.0
#pragma once

// CAP_SYS_ADMIN, which the agent has where the sandbox's kernel is its own (gVisor): a copy of a sandbox needs a new host name and
// boot id. Elsewhere it was never given, and all this does nothing. Nobody but the agent's own thread ever acts with it, and nothing
// that runs for a user can get it.
namespace glovebox::agent {

// For the calling thread: keeps it for later and acts without it.
void lay_down_privilege();
// For good, for the calling thread and all that comes of it. Raw calls only.
void give_up_privilege();

// Acts with it as long as this lives.
class Privileged {
 public:
  Privileged();
  ~Privileged() { lay_down_privilege(); }
  Privileged(const Privileged&) = delete;
  Privileged& operator=(const Privileged&) = delete;
};

}  // namespace glovebox::agent
