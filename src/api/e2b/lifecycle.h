// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sandbox/service.h"

// Pause and resume as this protocol has them: a paused sandbox has no deadline, and one that runs
// again has a new one.
namespace glovebox::api::e2b {

inline constexpr int64_t kMaxSeconds = 365LL * 24 * 3600;
inline constexpr int64_t kDefaultSeconds = 300;
inline constexpr int64_t kDefaultSecondsV1 = 15;
inline sandbox::Millis seconds(int64_t n) {
  return sandbox::Millis(n * 1000);
}

// Keys of SandboxInfo::attributes.
inline constexpr const char* kResumeAttribute = "e2b.resume";  // "on": traffic resumes it
inline constexpr const char* kTimeoutAttribute =
    "e2b.timeout";  // of the create call, in seconds; what it has when traffic resumes it

bool resumes_by_traffic(const sandbox::SandboxInfo& info);
// kUnsupported where the runtime keeps memory, which this protocol can ask not to be done.
Result<void> check_drops_memory(const sandbox::SandboxInfo& info);
// The deadline of a sandbox that traffic resumes, from then on.
int64_t timeout_of(const sandbox::SandboxInfo& info);

// Runs a paused sandbox again; it ends, or pauses, `timeout` seconds from now.
Async<sandbox::SandboxInfo> run_again(sandbox::SandboxService& service,
                                      const sandbox::Caller& caller, const std::string& id,
                                      int64_t timeout);

}  // namespace glovebox::api::e2b
