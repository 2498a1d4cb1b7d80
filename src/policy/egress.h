// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/address.h"
#include "policy/packages.h"

// What a sandbox may reach. One evaluator, used by the egress proxy and shown by the API. Exact
// semantics: docs/network-policy.md.
namespace glovebox::policy {

enum class Egress { kNone, kAllowlist, kOpen };
std::string_view egress_name(Egress egress);  // "none", "allowlist", "open"

enum class Protocol : uint8_t { kTls = 1, kHttp = 2, kTcp = 4, kUdp = 8, kIcmp = 16 };
std::string_view protocol_name(Protocol protocol);  // "tls", "http", "tcp", "udp", "icmp"

struct PortRange {
  uint16_t first = 0, last = 0;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

struct Rule {
  // Either a host, lower case, without trailing dot: "example.com" (that name alone),
  // "*.example.com" (every name below it, not itself), "*" (deny rules only: every destination,
  // named or not); or a block of addresses.
  std::string host;
  std::optional<Cidr> cidr;
  // Empty: 80 and 443 in allow rules, every port in deny rules.
  std::vector<PortRange> ports;
  // Bits of Protocol. 0 in allow rules: http on port 80, tls on every other; in deny rules: every
  // protocol. "tcp" is any byte stream, so it includes tls and http; a deny rule for one of the two
  // also forbids a tcp attempt, which could carry it.
  uint8_t protocols = 0;
  std::vector<std::string> methods;  // upper case; empty: all. http only
  std::vector<std::string> paths;    // "/v1/items" or "/v1/*"; empty: all. http only
  // What a verdict calls it: "allow[0]", "deny[2]", "preset:github[1]", "operator.deny[0]".
  std::string name;
  friend bool operator==(const Rule&, const Rule&) = default;
};

struct EgressLimits {
  uint64_t bandwidth = 0;      // bytes per second, each way; 0: none
  uint64_t connections = 256;  // open at one time, 1 … 4096
  uint64_t bytes = 0;          // both ways together over the sandbox's life; 0: none
  friend bool operator==(const EgressLimits&, const EgressLimits&) = default;
};

// As the caller wrote it, checked.
struct NetworkPolicy {
  Egress egress = Egress::kNone;
  std::vector<std::string> presets;
  std::vector<Rule> allow, deny;
  EgressLimits limits;
  std::optional<PackagePolicy> packages;  // absent: no registry
  friend bool operator==(const NetworkPolicy&, const NetworkPolicy&) = default;
};

// Reads {"egress", "presets", "allow", "deny", "limits", "packages"}. `path` names the object in
// messages. kInvalidArgument with details.field for everything unknown, out of range or
// contradictory: rules under "none", allow rules under "open", a wildcard that is not the leading
// label or stands under a top-level domain, methods or paths without http alone, tcp or udp without
// ports, a host with udp or icmp, a host that is an address, an allow rule within the floor or that
// a deny rule covers, a rule twice, more than 256 rules, an unknown preset. "egress" absent:
// "allowlist" when there are allow rules or presets, else "none". Presets that only open registries
// fit every level.
Result<NetworkPolicy> parse_network_policy(const boost::json::value& value,
                                           std::string_view path = "network");
// parse_network_policy() gives the same back.
boost::json::value to_json(const NetworkPolicy& policy);

// What the operator demands of every sandbox, from the settings file.
struct Operator {
  Egress max_egress = Egress::kOpen;
  std::vector<Rule> deny;
  EgressLimits max_limits{.bandwidth = 0, .connections = 0, .bytes = 0};  // 0: no cap
  // Named internal services, opened explicitly although the floor forbids their addresses: name ->
  // block and ports. They still need an allow rule of the sandbox that names the host, by itself or
  // by a wildcard; so "open" does not reach them.
  struct Internal {
    std::string host;
    Cidr cidr;
    std::vector<PortRange> ports;
    friend bool operator==(const Internal&, const Internal&) = default;
  };
  std::vector<Internal> internal;
  std::vector<Address> own_addresses;  // of the host: forbidden like the floor ("floor:host")
  // The data path carries UDP and ICMP that a rule names. False: such rules are refused when set,
  // so that none is accepted and ignored.
  bool forwards_datagrams = false;
  friend bool operator==(const Operator&, const Operator&) = default;
};
Result<Operator> parse_operator(const boost::json::value& value, std::string_view path = "network");
boost::json::value to_json(const Operator& op);

// kForbidden, naming the operator's rule in details.rule, when `policy` asks for more than the
// operator gives (egress level, limits above the caps; a limit left at its default is lowered
// instead). kUnsupported for rules with udp or icmp where nothing carries them.
Result<void> check_within(const NetworkPolicy& policy, const Operator& op);

struct Attempt {
  Protocol protocol = Protocol::kTcp;
  // A name, never an address; empty when the sandbox did not say one. decide() folds case and a dot
  // at the end, and refuses what is no host name.
  std::string host;
  // Where the connection would really go: after our own resolution.
  std::optional<Address> address;
  uint16_t port = 0;
  std::string method, path;  // http only
};

struct Verdict {
  bool allowed = false;
  // The deciding rule: "allow[0]", "deny[1]", "operator.deny[0]", "operator.max_egress",
  // "floor:private", "floor:dns" (port 53 or 853: names are asked of our resolver), "floor:name"
  // (no host name), "default:none", "default:allowlist", "default:open". The proxy adds "limit:…".
  std::string rule;
  std::string reason;  // one sentence for people: what was refused and why; empty when allowed
  std::string how_to_allow;  // one sentence; for the floor it says that no rule can
};

// Presets unfolded, ready to be asked. Immutable; cheap to share.
class Evaluator {
 public:
  Evaluator(const NetworkPolicy& policy, const Operator& op);
  // Order: operator deny, deny, allow, default; then the floor for the address. Without an address
  // the verdict is about names only (rules with a cidr do not match) and must be asked again once
  // the address is known. Under "open" every public address and every name is allowed by tls, http
  // and tcp but for deny rules.
  Verdict decide(const Attempt& attempt) const;
  // May this name be resolved at all: some rule that names it could allow a connection. Under
  // "open": unless denied on every port.
  Verdict decide_name(std::string_view host) const;
  // The floor for an answer to a query of `host`: empty when the address may be used. Internal
  // services are let through here by name.
  std::string_view floor(std::string_view host, const Address& address, uint16_t port = 0) const;
  Egress egress() const { return egress_; }  // never above the operator's
  const EgressLimits& limits() const { return limits_; }
  const std::vector<Rule>& allow() const { return allow_; }  // in force, presets included
  const std::vector<Rule>& deny() const { return deny_; }
  // With the presets' registries.
  const std::optional<PackagePolicy>& packages() const { return packages_; }
  // What GET …/network shows: egress, every rule in force with its name, limits, packages.
  boost::json::value effective() const;

 private:
  // As floor(); an internal service is let through only when the rule in question names it
  // (`by_name`).
  std::string_view floor_of(const Attempt& attempt, bool by_name) const;
  bool is_internal(const Attempt& attempt) const;
  Verdict deny_by_default(const Attempt& attempt) const;
  std::string default_rule() const;

  Egress egress_ = Egress::kNone;
  bool is_lowered_ = false;  // the policy asks for more than the operator gives
  Operator operator_;
  std::vector<Rule> allow_, deny_;  // the operator's deny rules first
  EgressLimits limits_;
  std::optional<PackagePolicy> packages_;
};

// Lower case, without one trailing dot, only [a-z0-9_-] in labels of 1 … 63 bytes, 253 in all, not
// an address in any spelling (also not "127.1" or "0x7f000001"). Empty when it is no host name.
// International names come in their xn-- form.
std::string normal_host(std::string_view text);
bool host_matches(std::string_view pattern, std::string_view host);

struct Preset {
  std::string_view name;  // "python-packages", "node-packages", "debian-packages", "github", …
  std::string_view description;
};
const std::vector<Preset>& presets();
// The policy that a preset alone stands for, its rules written out. The name is one of presets().
NetworkPolicy preset_policy(std::string_view name);

}  // namespace glovebox::policy
