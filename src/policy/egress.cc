// SPDX-License-Identifier: Apache-2.0
#include "policy/egress.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"
#include "policy/internal/presets.h"
#include "policy/internal/rule.h"

namespace glovebox::policy {
namespace {

namespace bj = boost::json;
using internal::RuleKind;

constexpr size_t kMaxRules = 256;
constexpr size_t kMaxPresets = 16;
constexpr size_t kMaxInternal = 256;
constexpr size_t kMaxOwnAddresses = 1024;
constexpr int64_t kMinBandwidth = 1000;
constexpr int64_t kMaxBandwidth = 1'000'000'000'000;
constexpr int64_t kMaxConnections = 4096;
constexpr int64_t kMaxBytes = int64_t{1} << 60;

constexpr std::array kLevels{Egress::kNone, Egress::kAllowlist, Egress::kOpen};

Result<std::optional<Egress>> parse_level(json::Reader& reader, std::string_view field) {
  GB_TRY(const auto name, reader.one_of(field, {"none", "allowlist", "open"}).optional());
  if (!name) return std::optional<Egress>();
  const auto* level = std::find_if(kLevels.begin(), kLevels.end(),
                                   [&](Egress e) { return egress_name(e) == *name; });
  return std::optional<Egress>(*level);
}

Result<EgressLimits> parse_limits(json::Reader& reader, std::string_view field, EgressLimits limits,
                                  int64_t min_connections) {
  GB_TRY(auto r, reader.object(field));
  GB_TRY(
      const auto bandwidth,
      r.integer("bandwidth", 0, kMaxBandwidth).or_default(static_cast<int64_t>(limits.bandwidth)));
  GB_TRY(const auto connections, r.integer("connections", min_connections, kMaxConnections)
                                     .or_default(static_cast<int64_t>(limits.connections)));
  GB_TRY(const auto bytes,
         r.integer("bytes", 0, kMaxBytes).or_default(static_cast<int64_t>(limits.bytes)));
  GB_TRYV(r.done());
  if (bandwidth > 0 && bandwidth < kMinBandwidth)
    return fail(r.error("bandwidth", "must be 0 for none, or at least 1000 bytes per second"));
  return EgressLimits{static_cast<uint64_t>(bandwidth), static_cast<uint64_t>(connections),
                      static_cast<uint64_t>(bytes)};
}

bj::array rules_json(const std::vector<Rule>& rules) {
  bj::array out;
  for (const auto& rule : rules) out.push_back(internal::rule_json(rule));
  return out;
}

Result<std::vector<std::string>> parse_presets(json::Reader& reader) {
  GB_TRY(auto names, reader.strings("presets", kMaxPresets).or_default({}));
  for (size_t i = 0; i < names.size(); ++i) {
    if (!internal::find_preset(names[i]))
      return fail(reader.error(
          "presets",
          "item " + std::to_string(i) + " is no preset; these are: " + internal::preset_names()));
    if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<ptrdiff_t>(i))
      return fail(reader.error("presets", "names " + names[i] + " twice"));
  }
  return names;
}

bool has_preset_rules(const NetworkPolicy& policy) {
  return std::any_of(policy.presets.begin(), policy.presets.end(), [](const std::string& name) {
    return !internal::find_preset(name)->allow.empty();
  });
}

// Rules that the level makes pointless show that the caller expects something else than would
// happen.
Result<void> check_level(const json::Reader& reader, const NetworkPolicy& policy) {
  const std::string level(egress_name(policy.egress));
  if (policy.egress != Egress::kAllowlist) {
    const std::string why = "does nothing with \"egress\": \"" + level + "\"; set \"allowlist\"";
    if (!policy.allow.empty()) return fail(reader.error("allow", why));
    if (has_preset_rules(policy)) return fail(reader.error("presets", "with rules " + why));
  }
  if (policy.egress == Egress::kNone && !policy.deny.empty())
    return fail(reader.error("deny", "does nothing with \"egress\": \"none\""));
  return {};
}

Result<void> check_rules(const json::Reader& reader, const NetworkPolicy& policy) {
  if (policy.allow.size() + policy.deny.size() > kMaxRules)
    return fail(reader.error(
        "allow", "and deny may have at most " + std::to_string(kMaxRules) + " rules together"));
  for (const auto& allow : policy.allow) {
    for (const auto& deny : policy.deny) {
      if (internal::covers(deny, allow))
        return fail(reader.error(allow.name,
                                 "can never allow anything: " + deny.name + " denies all of it"));
    }
  }
  return {};
}

Result<void> check_packages(const json::Reader& reader, const NetworkPolicy& policy) {
  if (!policy.packages || !policy.packages->registries.empty()) return {};
  for (const auto& name : policy.presets) {
    if (!internal::find_preset(name)->registries.empty()) return {};
  }
  return fail(reader.error("packages.registries", "must name at least one of: pypi, npm, debian"));
}

Egress default_level(const NetworkPolicy& policy) {
  return policy.allow.empty() && policy.presets.empty() ? Egress::kNone : Egress::kAllowlist;
}

Result<Operator::Internal> parse_internal(json::Reader& reader) {
  Operator::Internal out;
  GB_TRY(const auto host, reader.string("host").required());
  out.host = normal_host(host);
  if (out.host.empty())
    return fail(reader.error("host", "must be one host name, without wildcard"));
  GB_TRY(const auto block, reader.string("cidr").required());
  auto cidr = parse_cidr(block);
  if (!cidr) return fail(reader.error("cidr", cidr.error().message));
  out.cidr = *cidr;
  const auto range = special_range(out.cidr.base);
  if (range == "floor:multicast" || range == "floor:broadcast" || range == "floor:unspecified")
    return fail(reader.error("cidr", "is nothing a connection can be made to"));
  GB_TRY(out.ports, internal::parse_ports(reader, "ports"));
  if (out.ports.empty()) return fail(reader.error("ports", "is required"));
  GB_TRYV(reader.done());
  return out;
}

Result<std::vector<Address>> parse_own_addresses(json::Reader& reader) {
  GB_TRY(const auto texts, reader.strings("own_addresses", kMaxOwnAddresses).or_default({}));
  std::vector<Address> out;
  for (const auto& text : texts) {
    const auto address = parse_address(text);
    if (!address) return fail(reader.error("own_addresses", "must be IP addresses"));
    out.push_back(*address);
  }
  return out;
}

tl::unexpected<Error> above(std::string_view what, std::string_view rule) {
  const std::string name = "operator." + std::string(rule);
  return fail(Code::kForbidden,
              "network." + std::string(what) + ": is more than the operator gives (" + name + ")",
              {{"rule", name}, {"field", "network." + std::string(what)}});
}

bool is_above(uint64_t asked, uint64_t otherwise, uint64_t cap) {
  return cap != 0 && asked != otherwise && asked > cap;
}

}  // namespace

std::string_view egress_name(Egress egress) {
  switch (egress) {
    case Egress::kNone:
      return "none";
    case Egress::kAllowlist:
      return "allowlist";
    case Egress::kOpen:
      return "open";
  }
  return "";
}

Result<NetworkPolicy> parse_network_policy(const bj::value& value, std::string_view path) {
  json::Reader reader(value, std::string(path));
  NetworkPolicy out;
  GB_TRY(const auto level, parse_level(reader, "egress"));
  GB_TRY(out.presets, parse_presets(reader));
  GB_TRY(out.allow, internal::parse_rules(reader, "allow", RuleKind::kAllow, "allow"));
  GB_TRY(out.deny, internal::parse_rules(reader, "deny", RuleKind::kDeny, "deny"));
  GB_TRY(out.limits, parse_limits(reader, "limits", {}, 1));
  if (reader.has("packages")) {
    GB_TRY(out.packages, parse_package_policy(*reader.any("packages"), reader.path_of("packages")));
  } else {
    reader.any("packages");
  }
  GB_TRYV(reader.done());
  out.egress = level.value_or(default_level(out));
  GB_TRYV(check_level(reader, out));
  GB_TRYV(check_rules(reader, out));
  GB_TRYV(check_packages(reader, out));
  return out;
}

bj::value to_json(const NetworkPolicy& policy) {
  bj::object out{{"egress", egress_name(policy.egress)}};
  bj::array presets;
  for (const auto& name : policy.presets) presets.emplace_back(name);
  out["presets"] = std::move(presets);
  out["allow"] = rules_json(policy.allow);
  out["deny"] = rules_json(policy.deny);
  out["limits"] = internal::limits_json(policy.limits);
  if (policy.packages) out["packages"] = to_json(*policy.packages);
  return out;
}

Result<Operator> parse_operator(const bj::value& value, std::string_view path) {
  json::Reader reader(value, std::string(path));
  Operator out;
  GB_TRY(const auto level, parse_level(reader, "max_egress"));
  out.max_egress = level.value_or(Egress::kOpen);
  GB_TRY(out.deny, internal::parse_rules(reader, "deny", RuleKind::kDeny, "operator.deny"));
  GB_TRY(out.max_limits, parse_limits(reader, "max_limits", out.max_limits, 0));
  GB_TRY(auto services, reader.objects("internal", kMaxInternal).or_default({}));
  for (auto& service : services) {
    GB_TRY(auto entry, parse_internal(service));
    out.internal.push_back(std::move(entry));
  }
  GB_TRY(out.own_addresses, parse_own_addresses(reader));
  GB_TRY(out.forwards_datagrams, reader.boolean("forwards_datagrams").or_default(false));
  GB_TRYV(reader.done());
  return out;
}

bj::value to_json(const Operator& op) {
  bj::array services, addresses;
  for (const auto& service : op.internal)
    services.push_back(bj::object{{"host", service.host},
                                  {"cidr", service.cidr.text()},
                                  {"ports", internal::ports_json(service.ports)}});
  for (const auto& address : op.own_addresses) addresses.emplace_back(address.text());
  return bj::object{{"max_egress", egress_name(op.max_egress)},
                    {"deny", rules_json(op.deny)},
                    {"max_limits", internal::limits_json(op.max_limits)},
                    {"internal", std::move(services)},
                    {"own_addresses", std::move(addresses)},
                    {"forwards_datagrams", op.forwards_datagrams}};
}

Result<void> check_within(const NetworkPolicy& policy, const Operator& op) {
  if (policy.egress > op.max_egress) return above("egress", "max_egress");
  const EgressLimits& asked = policy.limits;
  const EgressLimits& cap = op.max_limits;
  const EgressLimits otherwise;
  if (is_above(asked.bandwidth, otherwise.bandwidth, cap.bandwidth))
    return above("limits.bandwidth", "max_limits.bandwidth");
  if (is_above(asked.connections, otherwise.connections, cap.connections))
    return above("limits.connections", "max_limits.connections");
  if (is_above(asked.bytes, otherwise.bytes, cap.bytes))
    return above("limits.bytes", "max_limits.bytes");
  constexpr auto kDatagrams =
      static_cast<uint8_t>(Protocol::kUdp) | static_cast<uint8_t>(Protocol::kIcmp);
  for (const auto& rule : policy.allow) {
    if ((rule.protocols & kDatagrams) && !op.forwards_datagrams)
      return fail(Code::kUnsupported,
                  "network." + rule.name + ": this server forwards neither UDP nor ICMP",
                  {{"field", "network." + rule.name + ".protocols"}});
  }
  return {};
}

}  // namespace glovebox::policy
