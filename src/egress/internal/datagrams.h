// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "egress/internal/core.h"
#include "egress/internal/packet.h"
#include "egress/internal/watched.h"

namespace glovebox::egress {

class DatagramFlow;

// Carries UDP and ICMP echo that a rule names. No packet of a sandbox is ever forwarded: what it
// holds is sent from a socket of ours, and what comes back is written anew into the sandbox's link.
class DatagramRelay {
 public:
  // `raw`: IPPROTO_RAW in the router namespace. `echo`: raw ICMP in the host's, which gets echo
  // replies only.
  DatagramRelay(Core& core, UniqueFd raw, UniqueFd echo);
  ~DatagramRelay();
  // `verdict` has allowed the packet, which is UDP or an echo request and relayable.
  void pass(const std::shared_ptr<Link>& link, const Packet& packet,
            const policy::Verdict& verdict);
  Awaitable<void> take_echo_replies();
  // Each second: ends flows that have been idle.
  void sweep(Clock::time_point now);

 private:
  friend class DatagramFlow;
  // Link, its port or echo identifier, destination, port (echo: 0).
  using Key = std::tuple<policy::Address, uint16_t, policy::Address, uint16_t, bool>;
  std::shared_ptr<DatagramFlow> open(const Key& key, const std::shared_ptr<Link>& link,
                                     const policy::Verdict& verdict);
  static Awaitable<void> take_answers(std::shared_ptr<DatagramFlow> flow);
  // Writes a packet into the link of its destination.
  void deliver(const policy::Address& to, const std::string& packet);

  Core& core_;
  UniqueFd raw_;
  std::shared_ptr<Watched> echo_;
  std::map<Key, std::shared_ptr<DatagramFlow>> flows_;
  std::map<uint16_t, std::weak_ptr<DatagramFlow>> by_identifier_;  // echo: ours on the wire
  uint16_t next_identifier_ = 0;
};

}  // namespace glovebox::egress
