// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::egress {

// What PacketObserver works with.
struct PacketSockets {
  UniqueFd packets;  // AF_PACKET in the router namespace: what sandboxes send and nobody else takes
  UniqueFd raw;      // IPPROTO_RAW there: packets into the links
  UniqueFd lookup;   // any socket there, to ask about interfaces
  UniqueFd echo;     // ICMP in the namespace the process was started in
};

// Sockets that live in the router namespace, whatever namespace the process is in later.
struct RouterSockets {
  UniqueFd tcp;      // every connection of a sandbox
  UniqueFd dns_tcp;  // the same, for rules that send port 53 elsewhere
  UniqueFd dns_udp;
  PacketSockets observed;
};
Result<RouterSockets> open_router_sockets(int netns_fd, uint16_t tcp_port, uint16_t dns_port);

}  // namespace glovebox::egress
