// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "policy/address.h"
#include "registry/settings.h"
#include "registry/url.h"

namespace glovebox::registry {

// Where the registry proxy may connect to. Immutable but for a cache of resolved upstreams; used on the fetching thread only.
class Reach {
 public:
  explicit Reach(const Settings& settings);

  // kForbidden with the reason. A literal special address is refused here, a name that leads to one by refuse_address().
  Result<void> check(const Url& url, bool is_named_by_index) const;
  // The name of the special range that forbids `address` for a connection to `origin`, or empty.
  std::string refuse_address(const Origin& origin, const sockaddr* address);
  // "user:password" for the origin of an upstream, or empty.
  std::string credentials(const Origin& origin) const;

 private:
  bool is_upstream(const Origin& origin) const { return upstreams_.contains(origin); }
  struct Endpoint {
    policy::Address address;
    uint16_t port = 0;
    friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
  };
  const std::set<Endpoint>& operator_endpoints();

  std::map<Origin, std::string> upstreams_;  // -> credentials
  std::set<std::string> file_hosts_;
  std::set<std::pair<std::string, uint16_t>> proxies_;  // of http_proxy, https_proxy, all_proxy
  std::optional<std::set<Endpoint>> operator_endpoints_;
};

std::optional<policy::Address> address_of(const sockaddr* address);

}  // namespace glovebox::registry
