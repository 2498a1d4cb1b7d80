// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// What the command line says about a sandbox's network, and the policy that it means
// (docs/network-policy.md). Only forms are checked here; the daemon judges hosts and rules.
namespace glovebox::cli {

struct NetworkOptions {
  std::optional<std::string> egress;
  std::vector<std::string> allow, allow_cidr, deny, presets;
  std::optional<std::string> file;  // of JSON: the whole policy, instead of all others
};

// "example.com", "*.example.com", with ":443" or ":80,5432,8000-8100" behind it. Ports 80 and 443
// mean web servers, as without ports; other ports mean any TCP. So one destination may take two
// rules.
Result<boost::json::array> allow_rules(std::string_view text);
// "20.30.0.0/16", "20.30.1.2:22", "[2a00::]/32:443".
Result<boost::json::array> allow_cidr_rules(std::string_view text);
// Either of them, or "*". Every protocol; without ports every port.
Result<boost::json::array> deny_rules(std::string_view text);

Result<boost::json::object> read_policy(const std::string& file);

// nullopt when nothing was said. The options were checked when they were read; the file may have
// changed since.
Result<std::optional<boost::json::object>> network_policy(const NetworkOptions& options);

}  // namespace glovebox::cli
