// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "egress/internal/core.h"
#include "egress/internal/watched.h"

namespace glovebox::egress {

class Flow;

// Answers the sandboxes' DNS queries, whichever server they were meant for. Names that the policy
// does not allow are refused here and never asked elsewhere.
class DnsServer {
 public:
  // `socket`: UDP with IP_PKTINFO, non-blocking.
  DnsServer(Core& core, UniqueFd socket);
  // Until the socket fails.
  Awaitable<void> run();

 private:
  Core& core_;
  std::shared_ptr<Watched> socket_;
};

// Queries on a TCP connection of the sandbox (RFC 7766).
Awaitable<void> serve_dns_stream(Flow& flow);

}  // namespace glovebox::egress
