// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "egress/internal/datagrams.h"
#include "egress/internal/sockets.h"

namespace glovebox::egress {

// Sees the packets of sandboxes that are neither taken as connections nor as DNS queries, which the
// router namespace drops. It tells the log about them, once for each flow in kFold, and gives UDP
// and echo requests that a rule names to the relay.
class PacketObserver {
 public:
  static constexpr auto kFold = std::chrono::seconds(10);
  PacketObserver(Core& core, PacketSockets sockets);
  Awaitable<void> run();
  Awaitable<void> sweep();
  DatagramRelay& relay() { return relay_; }

 private:
  struct Frame {
    int interface = 0;
    uint16_t ether_type = 0;
    bool is_for_us = false;  // addressed to the link's own MAC address
    bool has_vlan_tag = false;
    std::string_view bytes;
  };
  bool receive(Frame& frame, char* buffer, size_t size);
  void take(const Frame& frame);
  void judge(const std::shared_ptr<Link>& link, const Frame& frame, const Packet& packet);
  void report(Link& link, const Packet& packet, std::string_view protocol,
              const policy::Verdict& verdict);
  // The link behind an interface: its address there is the router's side, the sandbox has the other
  // one of the pair.
  std::shared_ptr<Link> link_of(int interface);

  Core& core_;
  DatagramRelay relay_;
  std::shared_ptr<Watched> packets_;
  UniqueFd lookup_;
  std::map<int, policy::Address> addresses_;  // of the sandbox behind an interface
  // Of the last kFold, for each sandbox: its rule, destination and port.
  std::map<policy::Address, std::set<std::tuple<std::string, policy::Address, uint16_t>>> told_;
};

}  // namespace glovebox::egress
