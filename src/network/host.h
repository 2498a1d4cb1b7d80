// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policy/address.h"

// What the host itself is configured to use.
namespace glovebox::network {

std::vector<policy::Address> own_addresses();   // of every interface, sorted
std::vector<std::string> host_resolvers();      // of /etc/resolv.conf, "address:port"; the loopback one when it names none
// Package registries of the host's pip, npm and apt: "pypi", "npm", "debian" -> URL. The public ones where they name none.
std::map<std::string, std::string> host_upstreams();

// Parsers of the above, for tests.
std::vector<std::string> parse_resolvers(std::string_view resolv_conf);
std::string parse_pip_index(std::string_view pip_conf);      // empty when it names none
std::string parse_npm_registry(std::string_view npmrc);
std::string parse_apt_archive(std::string_view sources);     // of one-line and deb822 files; the first archive that is not for security

}  // namespace glovebox::network
