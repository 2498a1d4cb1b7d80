// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/array.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sandbox/service.h"

// internetAccess and allowedHosts, as network policies and back.
namespace glovebox::api::lizard {

// What a create call says. The client sends internetAccess:false together with allowedHosts; a list alone means the same.
struct NetworkRequest {
  std::optional<bool> internet;
  std::vector<std::string> hosts;
  bool is_closed() const { return internet == false || !hosts.empty(); }
};

// The policy to ask for; null: say nothing, so that the operator's default holds, which is `usual` (null: no network at all).
// kInvalidArgument for entries that are neither host, "*.host", IPv4 address nor block, that nothing could ever reach, and for
// internetAccess:true where `usual` is not open: this server then has no internet to give, and pretending would be found out inside.
Result<sandbox::NetworkPolicyPtr> policy_for(const NetworkRequest& request, const sandbox::NetworkPolicyPtr& usual);

// What getInfo() says of a policy, whoever set it: true exactly when it opens every public address.
bool has_internet(const sandbox::NetworkPolicyPtr& policy);
// The hosts and blocks of its allow rules.
boost::json::array allowed_hosts(const sandbox::NetworkPolicyPtr& policy);

}  // namespace glovebox::api::lizard
