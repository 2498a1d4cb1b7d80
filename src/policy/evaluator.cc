// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"
#include "policy/egress.h"
#include "policy/internal/presets.h"
#include "policy/internal/rule.h"

namespace glovebox::policy {
namespace {

namespace bj = boost::json;
using internal::RuleKind;

constexpr std::string_view kDnsFloor = "floor:dns";
constexpr std::string_view kNameFloor = "floor:name";

// The smaller one; 0 stands for no limit.
uint64_t capped(uint64_t value, uint64_t cap) {
  if (cap == 0 || value == 0) return std::max(value, cap);
  return std::min(value, cap);
}

EgressLimits capped(const EgressLimits& limits, const EgressLimits& cap) {
  return {capped(limits.bandwidth, cap.bandwidth), capped(limits.connections, cap.connections),
          capped(limits.bytes, cap.bytes)};
}

// The caller's package policy with the presets' registries added; none when neither opens one.
std::optional<PackagePolicy> packages_of(const NetworkPolicy& policy) {
  std::optional<PackagePolicy> out = policy.packages;
  for (const auto& name : policy.presets) {
    const auto* preset = internal::find_preset(name);
    for (const Registry registry : preset ? preset->registries : std::vector<Registry>()) {
      if (!out) out.emplace();
      auto& open = out->registries;
      if (std::find(open.begin(), open.end(), registry) == open.end()) open.push_back(registry);
    }
  }
  return out;
}

std::string destination_text(const Attempt& attempt) {
  std::string out = attempt.host;
  if (attempt.address) {
    const std::string address = attempt.address->text();
    out += out.empty() ? address : " (" + address + ")";
  }
  if (out.empty()) out = "an unnamed destination";
  if (attempt.protocol != Protocol::kIcmp && attempt.port != 0)
    out += " port " + std::to_string(attempt.port);
  return out;
}

std::string attempt_text(const Attempt& attempt) {
  std::string out =
      std::string(protocol_name(attempt.protocol)) + " to " + destination_text(attempt);
  if (!attempt.method.empty()) out += ", method " + attempt.method;
  return out;
}

// The rule that would allow the attempt, as JSON.
std::string suggested_rule(const Attempt& attempt) {
  const bool is_datagram =
      attempt.protocol == Protocol::kUdp || attempt.protocol == Protocol::kIcmp;
  Rule rule;
  if (attempt.address && (attempt.host.empty() || is_datagram))
    rule.cidr = Cidr{*attempt.address, attempt.address->is_v6 ? 128 : 32};
  else
    rule.host = attempt.host;
  if (attempt.protocol != Protocol::kIcmp && attempt.port != 0)
    rule.ports = {{attempt.port, attempt.port}};
  const bool is_default =
      attempt.protocol == (attempt.port == 80 ? Protocol::kHttp : Protocol::kTls);
  if (!is_default) rule.protocols = static_cast<uint8_t>(attempt.protocol);
  return json::to_text(internal::rule_json(rule));
}

Verdict denied_by(const std::string& rule, const std::string& what) {
  const bool is_operators = rule.starts_with("operator.");
  return {false, rule, rule + " denies " + what + ".",
          is_operators ? "Only the operator of this server can allow it."
                       : "Change " + rule + " in the sandbox's network policy."};
}

Verdict denied_by_floor(std::string_view floor, const Attempt& attempt) {
  Verdict out{false, std::string(floor), attempt_text(attempt), {}};
  if (floor == kDnsFloor) {
    out.reason += " is DNS, which only the sandbox's own resolver may be asked.";
    out.how_to_allow = "No rule can allow it; use the resolver in /etc/resolv.conf.";
  } else if (floor == kNameFloor) {
    out.reason += " does not name a valid host.";
    out.how_to_allow = "No rule can allow it; use a host name or an address in its usual form.";
  } else {
    out.reason += " would go to an address that is never reachable from a sandbox (" +
                  std::string(floor.substr(floor.find(':') + 1)) + ").";
    out.how_to_allow =
        "No rule can allow it; the operator of this server may open a named internal service.";
  }
  return out;
}

bj::array rules_json(const std::vector<Rule>& rules, RuleKind kind) {
  bj::array out;
  for (const auto& rule : rules) {
    auto item = internal::rule_json(rule);
    item["name"] = rule.name;
    item["matches"] = internal::scope_json(rule, kind);
    out.push_back(std::move(item));
  }
  return out;
}

bool is_dns_port(const Attempt& attempt) {
  return attempt.protocol != Protocol::kIcmp && (attempt.port == 53 || attempt.port == 853);
}

}  // namespace

Evaluator::Evaluator(const NetworkPolicy& policy, const Operator& op)
    : egress_(std::min(policy.egress, op.max_egress)),
      is_lowered_(policy.egress > op.max_egress),
      operator_(op),
      deny_(op.deny),
      limits_(capped(policy.limits, op.max_limits)),
      packages_(packages_of(policy)) {
  deny_.insert(deny_.end(), policy.deny.begin(), policy.deny.end());
  if (egress_ != Egress::kAllowlist) return;
  allow_ = policy.allow;
  for (const auto& name : policy.presets) {
    const auto* preset = internal::find_preset(name);
    if (preset) allow_.insert(allow_.end(), preset->allow.begin(), preset->allow.end());
  }
}

std::string Evaluator::default_rule() const {
  return is_lowered_ ? "operator.max_egress" : "default:" + std::string(egress_name(egress_));
}

bool Evaluator::is_internal(const Attempt& attempt) const {
  return std::any_of(operator_.internal.begin(), operator_.internal.end(),
                     [&](const auto& service) {
                       return service.host == attempt.host &&
                              (!attempt.address || service.cidr.contains(*attempt.address)) &&
                              (attempt.port == 0 || service.ports.empty() ||
                               internal::in_ports(service.ports, attempt.port));
                     });
}

std::string_view Evaluator::floor_of(const Attempt& attempt, bool by_name) const {
  if (by_name && is_internal(attempt)) return {};
  if (attempt.address) {
    const auto range = special_range(*attempt.address);
    if (!range.empty()) return range;
    const auto& own = operator_.own_addresses;
    if (std::find(own.begin(), own.end(), *attempt.address) != own.end()) return "floor:host";
  }
  return is_dns_port(attempt) ? kDnsFloor : std::string_view();
}

std::string_view Evaluator::floor(std::string_view host, const Address& address,
                                  uint16_t port) const {
  Attempt attempt;
  attempt.host = normal_host(host);
  attempt.address = address;
  attempt.port = port;
  return floor_of(attempt, true);
}

Verdict Evaluator::deny_by_default(const Attempt& attempt) const {
  Verdict out{false, default_rule(), "No rule allows " + attempt_text(attempt) + ".", {}};
  const auto floor = floor_of(attempt, true);
  if (!floor.empty()) {
    out.how_to_allow = denied_by_floor(floor, attempt).how_to_allow;
  } else if (operator_.max_egress == Egress::kNone) {
    out.how_to_allow = "Only the operator of this server can allow it.";
  } else if (attempt.host.empty() && !attempt.address) {
    out.how_to_allow = "Allow its address with a \"cidr\" rule in the sandbox's network policy.";
  } else {
    out.how_to_allow = "Add " + suggested_rule(attempt) +
                       " to \"allow\" in the sandbox's network policy" +
                       (egress_ == Egress::kAllowlist ? "." : ", with \"egress\": \"allowlist\".");
  }
  return out;
}

Verdict Evaluator::decide(const Attempt& asked) const {
  Attempt attempt = asked;
  attempt.host = normal_host(asked.host);
  if (attempt.host.empty() && !asked.host.empty()) return denied_by_floor(kNameFloor, attempt);
  for (const auto& rule : deny_) {
    if (internal::denies(rule, attempt)) return denied_by(rule.name, attempt_text(attempt));
  }
  const bool is_stream = attempt.protocol != Protocol::kUdp && attempt.protocol != Protocol::kIcmp;
  bool is_matched = egress_ == Egress::kOpen && is_stream;
  if (is_matched && floor_of(attempt, false).empty()) return {true, default_rule(), {}, {}};
  for (const auto& rule : allow_) {
    if (!internal::allows(rule, attempt)) continue;
    is_matched = true;
    if (floor_of(attempt, !rule.cidr).empty()) return {true, rule.name, {}, {}};
  }
  const auto floor = floor_of(attempt, true);
  return is_matched && !floor.empty() ? denied_by_floor(floor, attempt) : deny_by_default(attempt);
}

Verdict Evaluator::decide_name(std::string_view asked) const {
  Attempt attempt;
  attempt.protocol = Protocol::kTls;
  attempt.host = normal_host(asked);
  if (attempt.host.empty()) return denied_by_floor(kNameFloor, attempt);
  const auto names = [&](const Rule& rule) {
    return !rule.cidr && host_matches(rule.host, attempt.host);
  };
  for (const auto& rule : deny_) {
    if (names(rule) && internal::is_total(rule))
      return denied_by(rule.name, "the name " + attempt.host);
  }
  if (egress_ == Egress::kOpen) return {true, default_rule(), {}, {}};
  const Rule* in_the_way = nullptr;
  for (const auto& rule : allow_) {
    if (!names(rule)) continue;
    const auto deny = std::find_if(deny_.begin(), deny_.end(), [&](const Rule& candidate) {
      return names(candidate) && internal::covers_scope(candidate, rule);
    });
    if (deny == deny_.end()) return {true, rule.name, {}, {}};
    in_the_way = &*deny;
  }
  if (in_the_way) return denied_by(in_the_way->name, "the name " + attempt.host);
  Verdict out = deny_by_default(attempt);
  out.reason = "No rule allows the name " + attempt.host + ".";
  return out;
}

bj::value Evaluator::effective() const {
  bj::array services;
  for (const auto& service : operator_.internal) {
    const bool is_named = std::any_of(allow_.begin(), allow_.end(), [&](const Rule& rule) {
      return !rule.cidr && host_matches(rule.host, service.host);
    });
    if (is_named)
      services.push_back(
          bj::object{{"host", service.host}, {"ports", internal::ports_json(service.ports)}});
  }
  return bj::object{{"egress", egress_name(egress_)},
                    {"allow", rules_json(allow_, RuleKind::kAllow)},
                    {"deny", rules_json(deny_, RuleKind::kDeny)},
                    {"limits", internal::limits_json(limits_)},
                    {"internal", std::move(services)},
                    {"packages", packages_ ? to_json(*packages_) : bj::value(nullptr)}};
}

}  // namespace glovebox::policy
