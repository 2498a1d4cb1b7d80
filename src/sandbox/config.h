// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace glovebox::policy {
struct NetworkPolicy;
}

namespace glovebox::sandbox {

// How long an agent may take before it counts as stuck, and other times that are not for operators: tests shorten them.
struct Patience {
  std::chrono::milliseconds exec_start{30'000};
  std::chrono::milliseconds exec_end_slack{30'000};  // after an execution's own timeout; then its agent is broken
  std::chrono::milliseconds exec_kill{20'000};
  std::chrono::milliseconds answer{60'000};        // to a request that does no bulk work
  std::chrono::milliseconds long_answer{600'000};  // removing or syncing a large tree
  std::chrono::milliseconds idle{60'000};          // between two pieces of a transfer
  std::chrono::milliseconds adopt{10'000};
  std::chrono::milliseconds ping_after{10'000};    // silence until it is asked whether it lives …
  std::chrono::milliseconds dead_after{40'000};    // … and until it counts as dead
  std::chrono::milliseconds leak_look{10'000};     // between two looks for host objects of no sandbox
  std::chrono::milliseconds pause{2'000};          // for calls under way to end when their sandbox is to be paused
  std::chrono::milliseconds lost_note{1'000};      // the channel is gone: how long the process's death may take to show
};

// Ready sandboxes that are kept for create calls to come: of a template and tier, with these limits, with or without a link.
struct PoolTarget {
  std::string template_name = "base";
  runtime::Tier tier = runtime::Tier::kContainer;
  size_t count = 0;                                    // always
  size_t max = 0;                                      // when recent calls wanted more than that at once; below `count`: as many
  std::optional<bool> network;                         // absent: as calls that do not speak of a network
  std::optional<double> cpus;                          // what is absent is the operator's default
  std::optional<uint64_t> memory_bytes, disk_bytes, processes, open_files;
  std::vector<std::string> warm;                       // languages whose kernels are up in it: python, javascript, bash
};

// What a tenant may have of volumes.
struct VolumeLimits {
  size_t count = 100;
  uint64_t total_bytes = 1ull << 40;  // of their sizes; the space is taken as it is filled
  uint64_t bytes = 64ull << 30;       // of one
};

// The operator's settings. A field's value here is its default.
struct Config {
  std::string data_dir;                            // absolute; everything that survives a restart is below it

  size_t max_sandboxes = 256;                      // alive at once on this host
  runtime::Limits default_limits;                  // for what a create call does not name
  runtime::Limits max_limits{                      // the most that a create call may ask for
      .cpus = 64, .memory_bytes = 64ull << 30, .disk_bytes = 64ull << 30, .inodes = 0, .processes = 16384, .open_files = 20000};
  std::chrono::milliseconds default_lifetime{300'000};
  std::chrono::milliseconds max_lifetime{0};       // 0: no cap; else also what "none" becomes
  std::chrono::milliseconds retention{3'600'000};  // how long an ended sandbox can still be read
  std::chrono::milliseconds start_timeout{60'000};
  std::chrono::milliseconds freeze_after{300};     // quiet time until an idle sandbox is frozen; 0: never
  uint64_t max_snapshot_bytes = 64ull << 30;       // that a tenant's snapshots may hold together; 0: no limit
  int parallel_starts = 4;                         // engines started at the same time; more wait

  size_t output_memory_bytes = 64 * 1024;          // an execution's output up to this stays in memory until its end
  uint64_t output_file_bytes = 128ull << 20;       // output kept of one execution; beyond it is counted and dropped
  size_t kept_executions = 1000;                   // ended executions remembered per sandbox, the newest

  std::shared_ptr<const policy::NetworkPolicy> default_network;  // of sandboxes whose callers say nothing; null: none
  std::vector<PoolTarget> pool;                    // beside max_sandboxes
  uint64_t pool_free_memory_bytes = 1ull << 30;    // of the host's, below which the pool does not grow with demand
  VolumeLimits volumes;
  std::optional<runtime::Tier> default_runtime;    // what "auto" means; empty: the strongest usable tier
  Patience patience;
};

}  // namespace glovebox::sandbox
