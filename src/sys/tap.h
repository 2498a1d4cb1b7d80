// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

// A virtual machine's place on a network link, in the calling thread's network namespace.
namespace glovebox::sys {

struct InterfaceAddress {
  std::string mac;       // "aa:bb:cc:dd:ee:ff"
  uint32_t address = 0;  // IPv4, host order; 0: none
  int prefix = 0;
  uint32_t gateway = 0;  // of the default route; 0: none
};
Result<InterfaceAddress> interface_address(const std::string& name);

// A tap that lasts until its namespace goes, with one queue and the virtio header, to be opened by
// `owner`.
Result<void> add_tap(const std::string& name, uint32_t owner);

// Joins `wire` and `tap` at their receiving sides (traffic control's ingress and mirred), as one
// cable: what comes in by the one goes out by the other, and the namespace's own stack sees none of
// it. From the tap only ARP, and IPv4 packets that come from `address`: a guest has its own network
// stack and could claim to be its neighbour.
Result<void> join(const std::string& wire, const std::string& tap, uint32_t address);

}  // namespace glovebox::sys
