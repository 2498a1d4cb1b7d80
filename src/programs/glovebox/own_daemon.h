// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "programs/glovebox/loop.h"
#include "programs/glovebox/settings.h"

namespace glovebox::cli {

// A daemon for as long as somebody needs it: `run` and `shell` work on a host where none was
// started. All of them that use one data directory share it; the last one stops it, unless
// sandboxes of others still live in it.
class DaemonLease {
 public:
  // The daemon the settings point at, or a new `glovebox up` on a free port with the same data
  // directory.
  static Async<std::unique_ptr<DaemonLease>> acquire(const Settings& settings);
  ~DaemonLease();

  const Target& target() const { return target_; }
  // Stops the daemon if it is one of ours and nobody needs it. Call once, at the end.
  Async<void> release();

 private:
  DaemonLease() = default;
  Async<void> start(const Settings& settings);
  bool is_ours(int pid) const;

  Target target_;
  std::string data_dir_;
  int lock_fd_ = -1;  // <data_dir>/run.lock, shared while in use; holds the pid of the daemon that
                      // a `run` has started
};

}  // namespace glovebox::cli
