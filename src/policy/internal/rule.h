// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/json.h"
#include "policy/egress.h"

namespace glovebox::policy::internal {

enum class RuleKind { kAllow, kDeny };

// Reads the list `field` of `reader`; the rules are called "<name>[0]" and so on.
Result<std::vector<Rule>> parse_rules(json::Reader& reader, std::string_view field, RuleKind kind,
                                      const std::string& name);
// An array of ports and "first-last" ranges; kInvalidArgument when one is there twice or ranges
// overlap.
Result<std::vector<PortRange>> parse_ports(json::Reader& reader, std::string_view field);

boost::json::object rule_json(const Rule& rule);  // without its name
boost::json::array ports_json(const std::vector<PortRange>& ports);
boost::json::object limits_json(const EgressLimits& limits);
// What a rule opens or closes, defaults written out: "tls:443", "http:80", "any:*".
boost::json::array scope_json(const Rule& rule, RuleKind kind);

bool in_ports(const std::vector<PortRange>& ports, uint16_t port);
// Does the allow rule permit the attempt, does the deny rule forbid it? Where the attempt does not
// say enough, an allow rule does not match and a deny rule does. The attempt's host is normal.
bool allows(const Rule& rule, const Attempt& attempt);
bool denies(const Rule& rule, const Attempt& attempt);
// The deny rule forbids everything that the allow rule could permit: for every destination of it,
// or (scope) for one destination that both name.
bool covers(const Rule& deny, const Rule& allow);
bool covers_scope(const Rule& deny, const Rule& allow);
// Forbids a destination on every port, in every protocol.
bool is_total(const Rule& deny);
// Equal but for their names.
bool same_rule(const Rule& a, const Rule& b);

}  // namespace glovebox::policy::internal
