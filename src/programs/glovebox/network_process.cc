// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/network_process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "egress/proxy.h"
#include "network/router.h"
#include "registry/registry.h"

namespace glovebox {
namespace {

constexpr int kControl = 3, kRouterNamespace = 4;

std::optional<uid_t> user_of(const std::string& text) {
  const auto number = parse_int(text);
  if (!number || *number < 1 || *number > 0x7fffffff) return std::nullopt;
  return static_cast<uid_t>(*number);
}

}  // namespace

std::optional<int> run_network_process(const std::vector<std::string>& arguments) {
  const std::string& word = arguments[0];
  if (word == "internal-keep-network") return network::keep_network();
  if (word == "internal-egress-proxy" && arguments.size() == 3) {
    const auto user = user_of(arguments[2]);
    if (!user) return 2;
    ::prctl(PR_SET_NAME, "glovebox-egress");
    egress::EgressOptions options;
    options.control_fd = kControl;
    options.router_netns_fd = kRouterNamespace;
    options.root_directory = arguments[1];
    options.uid = options.gid = *user;
    options.tcp_port = network::kTcpPort;
    options.dns_port = network::kDnsPort;
    return egress::run_egress_proxy(options);
  }
  if (word == "internal-registry-proxy" && arguments.size() == 4) {
    const auto user = user_of(arguments[3]);
    if (!user) return 2;
    // The way to it may be closed to the user that the process becomes, as with a data directory below /root.
    if (::chdir(arguments[2].c_str()) != 0) {
      log::error("registry.failed", {{"message", "cannot enter its cache: " + errno_text(errno)}});
      return 1;
    }
    ::prctl(PR_SET_NAME, "glovebox-reg");
    registry::RegistryOptions options;
    options.control_fd = kControl;
    options.run_dir = arguments[1];
    options.cache_dir = ".";
    options.uid = options.gid = *user;
    return registry::run_registry_proxy(options);
  }
  return std::nullopt;
}

}  // namespace glovebox
