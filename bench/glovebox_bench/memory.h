// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

// What /proc says about memory. MiB; 0 for what cannot be read, such as a process that has ended.
namespace glovebox::bench {

double available_mib();  // MemAvailable of the host

double resident_mib(pid_t pid);  // VmRSS

// The sum of what they hold, each shared page counted once among all that share it (Pss). Reading
// it walks the page tables: milliseconds for a large process.
double proportional_mib(const std::vector<pid_t>& pids);

// Everything that is in a control group named after one of these sandboxes.
std::vector<pid_t> processes_in_groups(const std::vector<std::string>& ids);

// Children of this process, theirs, and so on.
std::vector<pid_t> descendants();

}  // namespace glovebox::bench
