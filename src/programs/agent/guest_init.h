// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace glovebox::agent {

// The first program of a virtual machine of its own (spec/channel.md, "In a machine of its own"): loads the modules of its initramfs,
// builds the root file system and the network that the kernel's command line names, keeps what the agent needs of root's power, and
// executes the agent, with the channel as its standard input and output and the files of kGroupFds. What goes wrong is said on the console and ends the machine.
[[noreturn]] void become_guest();

// Of the agent that it executes, with --guest: cgroup.procs and cgroup.freeze of the group for everything else (freezer.h).
constexpr int kGroupFds[] = {3, 4};

}  // namespace glovebox::agent
