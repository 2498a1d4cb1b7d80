// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "policy/internal/host.h"
#include "policy/internal/rule.h"

namespace glovebox::policy::internal {
namespace {

constexpr uint8_t bit(Protocol protocol) {
  return static_cast<uint8_t>(protocol);
}
constexpr uint8_t kStreams = bit(Protocol::kTls) | bit(Protocol::kHttp) | bit(Protocol::kTcp);
constexpr uint8_t kEvery = kStreams | bit(Protocol::kUdp) | bit(Protocol::kIcmp);
constexpr uint16_t kHttpPort = 80;

const std::vector<PortRange>& allowed_ports(const Rule& rule) {
  static const std::vector<PortRange> web{{80, 80}, {443, 443}};
  return rule.ports.empty() ? web : rule.ports;
}

// The protocols an allow rule permits on one port.
uint8_t allowed_protocols(const Rule& rule, uint16_t port) {
  if (rule.protocols == 0) return port == kHttpPort ? bit(Protocol::kHttp) : bit(Protocol::kTls);
  // A byte stream may be anything, so "tcp" includes the two that can be told from it.
  return rule.protocols & bit(Protocol::kTcp) ? rule.protocols | kStreams : rule.protocols;
}

// The protocols a deny rule forbids. A stream that nobody looks into could be what it forbids.
uint8_t denied_protocols(const Rule& rule) {
  if (rule.protocols == 0) return kEvery;
  uint8_t out = rule.protocols;
  if (out & bit(Protocol::kTcp)) out |= kStreams;
  if (out & kStreams) out |= bit(Protocol::kTcp);
  return out;
}

bool names_destination(const Rule& rule, const Attempt& attempt) {
  if (rule.cidr) return attempt.address && rule.cidr->contains(*attempt.address);
  return host_matches(rule.host, attempt.host);
}

bool has(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool allows_request(const Rule& rule, const Attempt& attempt) {
  if (!rule.methods.empty() && !has(rule.methods, attempt.method)) return false;
  const auto matches = [&](const std::string& pattern) {
    return match_path(pattern, attempt.path) == PathMatch::kYes;
  };
  return rule.paths.empty() || std::any_of(rule.paths.begin(), rule.paths.end(), matches);
}

bool denies_request(const Rule& rule, const Attempt& attempt) {
  if (attempt.protocol != Protocol::kHttp) return true;
  if (!rule.methods.empty() && !attempt.method.empty() && !has(rule.methods, attempt.method))
    return false;
  const auto matches = [&](const std::string& pattern) {
    return match_path(pattern, attempt.path) != PathMatch::kNo;
  };
  return rule.paths.empty() || std::any_of(rule.paths.begin(), rule.paths.end(), matches);
}

bool port_range_within(const PortRange& inner, const std::vector<PortRange>& outer) {
  return std::any_of(outer.begin(), outer.end(), [&](const PortRange& range) {
    return range.first <= inner.first && inner.last <= range.last;
  });
}

bool ports_cover(const Rule& deny, const Rule& allow) {
  if (deny.ports.empty()) return true;
  const auto& ports = allowed_ports(allow);
  return std::all_of(ports.begin(), ports.end(),
                     [&](const PortRange& range) { return port_range_within(range, deny.ports); });
}

// All that an allow rule may permit on any of its ports.
uint8_t all_protocols(const Rule& allow) {
  if (allow.protocols != 0) return allowed_protocols(allow, 0);
  uint8_t out = 0;
  for (const auto& [first, last] : allowed_ports(allow)) {
    if (first <= kHttpPort && kHttpPort <= last) out |= bit(Protocol::kHttp);
    if (first != kHttpPort || last != kHttpPort) out |= bit(Protocol::kTls);
  }
  return out;
}

bool destination_covers(const Rule& deny, const Rule& allow) {
  if (deny.host == "*") return true;
  if (deny.cidr)
    return allow.cidr && deny.cidr->prefix <= allow.cidr->prefix &&
           deny.cidr->contains(allow.cidr->base);
  if (allow.cidr) return false;
  if (allow.host == deny.host) return true;
  if (!allow.host.starts_with("*.")) return host_matches(deny.host, allow.host);
  // "*.a.example.com" lies within "*.example.com", not within "a.example.com".
  return deny.host.starts_with("*.") && host_matches(deny.host, allow.host.substr(2));
}

template <class T>
bool is_subset(const std::vector<T>& inner, const std::vector<T>& outer) {
  return std::all_of(inner.begin(), inner.end(), [&](const T& item) { return has(outer, item); });
}

// An empty list stands for all.
bool list_covers(const std::vector<std::string>& deny, const std::vector<std::string>& allow) {
  return deny.empty() || (!allow.empty() && is_subset(allow, deny));
}

}  // namespace

bool in_ports(const std::vector<PortRange>& ports, uint16_t port) {
  return std::any_of(ports.begin(), ports.end(), [&](const PortRange& range) {
    return range.first <= port && port <= range.last;
  });
}

bool allows(const Rule& rule, const Attempt& attempt) {
  const bool has_port = attempt.protocol != Protocol::kIcmp;
  return (!has_port || in_ports(allowed_ports(rule), attempt.port)) &&
         (allowed_protocols(rule, attempt.port) & bit(attempt.protocol)) &&
         names_destination(rule, attempt) && allows_request(rule, attempt);
}

bool denies(const Rule& rule, const Attempt& attempt) {
  const bool has_port = attempt.protocol != Protocol::kIcmp;
  return (!has_port || rule.ports.empty() || in_ports(rule.ports, attempt.port)) &&
         (denied_protocols(rule) & bit(attempt.protocol)) && names_destination(rule, attempt) &&
         denies_request(rule, attempt);
}

bool covers_scope(const Rule& deny, const Rule& allow) {
  return ports_cover(deny, allow) && (all_protocols(allow) & ~denied_protocols(deny)) == 0 &&
         list_covers(deny.methods, allow.methods) && list_covers(deny.paths, allow.paths);
}

bool covers(const Rule& deny, const Rule& allow) {
  return destination_covers(deny, allow) && covers_scope(deny, allow);
}

bool is_total(const Rule& deny) {
  return (deny.ports.empty() || port_range_within({1, 65535}, deny.ports)) &&
         (kStreams & ~denied_protocols(deny)) == 0 && deny.methods.empty() && deny.paths.empty();
}

bool same_rule(const Rule& a, const Rule& b) {
  Rule renamed = b;
  renamed.name = a.name;
  return a == renamed;
}

}  // namespace glovebox::policy::internal
