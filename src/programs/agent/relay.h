// SPDX-License-Identifier: Apache-2.0
#pragma once

// On the host, beside a monitor whose channel to the guest's agent is a socket: carries bytes
// between that socket and the sandbox's lasting pipes, so that a daemon may come and go. It reads
// nothing of what it carries, holds at most 64 KiB of each direction, and takes no more from the
// one side than the other one accepts.
namespace glovebox::agent {

// What it is started with.
inline constexpr int kRelayToAgent = 0;    // pipe, open for reading and writing
inline constexpr int kRelayFromAgent = 1;  // likewise
inline constexpr int kRelayLog = 2;  // gets what comes from kRelayConsole, as far as it has room
inline constexpr int kRelayListener =
    3;  // socket; the first connection is the agent's, and the only one
inline constexpr int kRelayMonitor = 4;  // pidfd
inline constexpr int kRelayConsole = 5;  // pipe, read end: what the monitor prints

// Ends with status 0 after the monitor has ended, and all that the agent had said was passed on as
// far as the pipe took it; with 1 when the agent's connection ends while the monitor lives, or
// something that it was started with is missing.
[[noreturn]] void relay();

}  // namespace glovebox::agent
