// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// The one network card of a guest with a kernel of its own (spec/channel.md, "In a machine of its own").
namespace glovebox::agent {

struct GuestNetwork {
  std::string address;  // dotted, as the others; empty: it is connected to nothing
  int prefix = 0;
  std::string gateway;  // empty or 0.0.0.0: none
  std::string mac;      // empty: the card's own
};

// Makes the card "eth0" with these, whatever it had before; without an address it is down and named "unplugged". Empty when it is
// done, else what failed.
std::string configure_network(const GuestNetwork& network);

// What eth0 has now; empty where there is none.
GuestNetwork present_network();

// errno says what failed.
bool set_interface_up(const char* name, bool up);

}  // namespace glovebox::agent
