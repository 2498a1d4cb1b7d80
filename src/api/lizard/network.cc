// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/network.h"

#include <boost/json/object.hpp>
#include <set>

#include "api/lizard/errors.h"
#include "policy/egress.h"

namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
constexpr std::string_view kField = "allowedHosts", kRules = "network.allow";

tl::unexpected<Error> wrong_host(size_t index, const std::string& what) {
  const std::string field = std::string(kField) + "[" + std::to_string(index) + "]";
  return fail(Code::kInvalidArgument, field + ": " + what, {{"field", field}});
}

// An address means every port, and whatever can be sent there; a name means web servers, as rules of the policy do by themselves.
Result<bj::object> rule_for(size_t index, const std::string& entry) {
  const bool is_block = entry.find('/') != std::string::npos || policy::parse_address(entry);
  if (!is_block) return bj::object{{"host", entry}};
  const auto block = policy::parse_cidr(entry);
  if (!block) return wrong_host(index, block.error().message);
  if (block->base.is_v6) return wrong_host(index, "must be a host, *.host, an IPv4 address or an IPv4 block");
  return bj::object{{"cidr", entry}, {"ports", bj::array{"1-65535"}}, {"protocols", bj::array{"tcp", "udp"}}};
}

// The policy calls its rules by their place in `allow`; the caller knows the entries of `allowedHosts`.
Error in_callers_words(Error error) {
  const auto rename = [](std::string& text) {
    if (text.starts_with(kRules)) text.replace(0, kRules.size(), kField);
  };
  rename(error.message);
  if (const auto field = error.details.find("field"); field != error.details.end()) rename(field->second);
  return error;
}

Result<sandbox::NetworkPolicyPtr> policy_of(const std::vector<std::string>& hosts) {
  bj::array rules;
  std::set<std::string> seen;
  for (size_t i = 0; i < hosts.size(); ++i) {
    GB_TRY(auto rule, rule_for(i, hosts[i]));
    if (seen.insert(hosts[i]).second) rules.push_back(std::move(rule));
  }
  auto policy = policy::parse_network_policy(bj::object{{"egress", "allowlist"}, {"allow", std::move(rules)}});
  if (!policy) return fail(in_callers_words(std::move(policy).error()));
  return std::make_shared<const policy::NetworkPolicy>(std::move(*policy));
}

}  // namespace

Result<sandbox::NetworkPolicyPtr> policy_for(const NetworkRequest& request, const sandbox::NetworkPolicyPtr& usual) {
  if (request.internet == true && !request.hosts.empty()) {
    return fail(Code::kInvalidArgument, "allowedHosts: are exceptions from internetAccess: false, and it is true", {{"field", "allowedHosts"}});
  }
  if (!request.hosts.empty()) return policy_of(request.hosts);
  // Where nobody has a network, "none" needs no link that leads nowhere.
  if (request.internet == false && usual) return std::make_shared<const policy::NetworkPolicy>();
  if (request.internet == true && !has_internet(usual)) {
    return fail(refusal(Code::kInvalidArgument, "INTERNET_ACCESS_NOT_OFFERED",
                        "internetAccess: sandboxes of this server have no open internet; its operator opens it with the setting "
                        "network.default = {egress = \"open\"}. allowedHosts opens single hosts"));
  }
  return sandbox::NetworkPolicyPtr();
}

bool has_internet(const sandbox::NetworkPolicyPtr& policy) { return policy && policy->egress == policy::Egress::kOpen; }

bj::array allowed_hosts(const sandbox::NetworkPolicyPtr& policy) {
  bj::array hosts;
  if (!policy) return hosts;
  for (const policy::Rule& rule : policy->allow) {
    const bool is_address = rule.cidr && rule.cidr->prefix == (rule.cidr->base.is_v6 ? 128 : 32);
    hosts.emplace_back(!rule.cidr ? rule.host : is_address ? rule.cidr->base.text() : rule.cidr->text());
  }
  return hosts;
}

}  // namespace glovebox::api::lizard
