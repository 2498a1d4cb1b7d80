// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <optional>

#include "policy/egress.h"

namespace glovebox::api::e2b {

// The policy that `allow_internet_access` and `network` ask for. In this protocol everything is allowed unless denied and allow beats
// deny; in ours deny beats allow, so blocks that both name are cut out of the denied ones. kInvalidArgument for contradictions,
// kUnsupported for what this server does not do (rules, egressProxy, …). Nothing when they choose nothing.
Result<std::optional<policy::NetworkPolicy>> network_policy(std::optional<bool> allow_internet_access, const boost::json::value* network);

}  // namespace glovebox::api::e2b
