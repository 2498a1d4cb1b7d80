// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

// The egress proxy: a process of its own, and the only way from a sandbox to the network. It takes
// what the router namespace redirects to it (every TCP connection, every DNS query), decides by the
// sandbox's policy, and dials out from the namespace it was started in. How it decides:
// docs/egress-proxy.md.
namespace glovebox::egress {

struct EgressOptions {
  int control_fd = -1;       // SOCK_STREAM to the daemon; the proxy ends when it does
  int router_netns_fd = -1;  // where the listening sockets are opened
  std::string
      root_directory;  // becomes the process's root: empty but for the registry proxy's socket
  uid_t uid = 65534;   // who the process becomes; no other process should run as this user
  gid_t gid = 65534;
  uint16_t tcp_port =
      3129;  // in the router namespace, where its nftables rules send connections and queries
  uint16_t dns_port = 3053;
};

// Call as root in a process without threads. Returns the exit status: 0 when the daemon has closed
// the control stream.
int run_egress_proxy(const EgressOptions& options);

}  // namespace glovebox::egress
