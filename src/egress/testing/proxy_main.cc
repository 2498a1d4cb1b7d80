// SPDX-License-Identifier: Apache-2.0
// Runs the proxy alone, for tests: proxy_main CONTROL_FD NETNS_FD ROOT_DIRECTORY UID GID
#include <cstdlib>
#include <iostream>

#include "egress/proxy.h"

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: egress_proxy_alone CONTROL_FD NETNS_FD ROOT_DIRECTORY UID GID\n";
    return 2;
  }
  glovebox::egress::EgressOptions options;
  options.control_fd = std::atoi(argv[1]);
  options.router_netns_fd = std::atoi(argv[2]);
  options.root_directory = argv[3];
  options.uid = static_cast<uid_t>(std::atoi(argv[4]));
  options.gid = static_cast<gid_t>(std::atoi(argv[5]));
  return glovebox::egress::run_egress_proxy(options);
}
