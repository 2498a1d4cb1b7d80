// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace glovebox::agent {

// The first program of a virtual machine of its own (spec/channel.md, "In a machine of its own"): loads the modules of its initramfs,
// builds the root file system and the network that the kernel's command line names, keeps what the agent needs of root's power, and
// executes the agent, with the channel as its standard input and output. What goes wrong is said on the console and ends the machine.
[[noreturn]] void become_guest();

}  // namespace glovebox::agent
