// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::sys {

// A pid alone may be reused; with the start time (clock ticks since boot) it names one process.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;
  bool operator==(const ProcessId&) const = default;
};

std::string boot_id();  // changes with every boot, and with it the meaning of every ProcessId

std::optional<ProcessId> identify(pid_t pid);  // nullopt when there is no such process
bool is_present(const ProcessId& id);          // alive or a zombie
bool is_alive(const ProcessId& id);
// kNotFound when the process is gone or its number belongs to another one.
Result<UniqueFd> open_pidfd(const ProcessId& id);
void kill_process(const ProcessId& id);  // SIGKILL; nothing when it is gone
bool wait_readable(int fd, std::chrono::milliseconds patience);

// The wait status of a child of ours that has ended, without reaping it.
std::optional<int> peek_status(pid_t pid);
// Reaps those of `members` that are zombies of ours and drops every one that is gone. A zombie
// whose parent is another process outside `members` is as good as gone: its parent will reap it
// when it likes.
void reap_ended(std::vector<ProcessId>* members);
std::vector<pid_t> children();  // of this process, zombies included

// A descriptor of the process whose link reads `target` ("pipe:[123]"), or -1.
int find_descriptor(pid_t pid, const std::string& target);

// Runs `entry(argument)` in a new process that shares our memory (clone with CLONE_VM | CLONE_VFORK
// and `flags`) and returns once it has called exec or _exit. `entry` may only make system calls.
// Signals are blocked in it until it unblocks them.
struct Spawned {
  pid_t pid = 0;
  UniqueFd pidfd;
};
Result<Spawned> spawn_sharing_memory(int flags, int (*entry)(void*), void* argument);

}  // namespace glovebox::sys
