// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/rule.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "policy/internal/host.h"

namespace glovebox::policy {
namespace {
constexpr std::array kProtocols{Protocol::kTls, Protocol::kHttp, Protocol::kTcp, Protocol::kUdp,
                                Protocol::kIcmp};
constexpr uint8_t bit(Protocol protocol) {
  return static_cast<uint8_t>(protocol);
}
}  // namespace

std::string_view protocol_name(Protocol protocol) {
  switch (protocol) {
    case Protocol::kTls:
      return "tls";
    case Protocol::kHttp:
      return "http";
    case Protocol::kTcp:
      return "tcp";
    case Protocol::kUdp:
      return "udp";
    case Protocol::kIcmp:
      return "icmp";
  }
  return "";
}

namespace internal {
namespace {

namespace bj = boost::json;

constexpr size_t kMaxRules = 256;
constexpr size_t kMaxPorts = 64;
constexpr size_t kMaxMethods = 16;
constexpr size_t kMaxPaths = 64;
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kMaxHostTextBytes = 255;
constexpr size_t kMaxBlockTextBytes = 64;
constexpr std::string_view kOurZone = "glovebox.internal";

std::optional<uint16_t> to_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text[0] == '0') return std::nullopt;
  const auto number = parse_int(text);
  if (!number || *number < 1 || *number > 65535) return std::nullopt;
  return static_cast<uint16_t>(*number);
}

std::optional<PortRange> to_range(const bj::value& value) {
  if (const auto* number = value.if_int64()) {
    if (*number < 1 || *number > 65535) return std::nullopt;
    const auto port = static_cast<uint16_t>(*number);
    return PortRange{port, port};
  }
  const auto* text = value.if_string();
  if (!text) return std::nullopt;
  const std::string_view view(text->data(), text->size());
  const size_t dash = view.find('-');
  if (dash == view.npos) return std::nullopt;
  const auto first = to_port(view.substr(0, dash)), last = to_port(view.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return PortRange{*first, *last};
}

bool has_overlap(std::vector<PortRange> ports) {
  std::sort(ports.begin(), ports.end(),
            [](const PortRange& a, const PortRange& b) { return a.first < b.first; });
  for (size_t i = 1; i < ports.size(); ++i) {
    if (ports[i].first <= ports[i - 1].last) return true;
  }
  return false;
}

bool has_duplicate(std::vector<std::string> list) {
  std::sort(list.begin(), list.end());
  return std::adjacent_find(list.begin(), list.end()) != list.end();
}

// A list that must not be empty when it is there: an empty one would read as "none", and mean
// "all".
Result<std::vector<std::string>> parse_list(json::Reader& reader, std::string_view field,
                                            size_t max) {
  GB_TRY(auto list, reader.strings(field, max).optional());
  if (!list) return std::vector<std::string>();
  if (list->empty()) return fail(reader.error(field, "must not be empty; leave it out for all"));
  if (has_duplicate(*list)) return fail(reader.error(field, "has an item twice"));
  return *std::move(list);
}

Result<uint8_t> parse_protocols(json::Reader& reader) {
  GB_TRY(const auto names, parse_list(reader, "protocols", kProtocols.size()));
  uint8_t out = 0;
  for (const auto& name : names) {
    const auto* found = std::find_if(kProtocols.begin(), kProtocols.end(),
                                     [&](Protocol p) { return protocol_name(p) == name; });
    if (found == kProtocols.end())
      return fail(reader.error("protocols", "must be of: tls, http, tcp, udp, icmp"));
    out |= bit(*found);
  }
  return out;
}

bool is_method(const std::string& text) {
  const auto is_plain = [](char c) { return (c >= 'A' && c <= 'Z') || c == '-' || c == '_'; };
  return !text.empty() && text.size() <= 32 && text != "CONNECT" &&
         std::all_of(text.begin(), text.end(), is_plain);
}

Result<void> parse_request_part(json::Reader& reader, Rule& rule) {
  GB_TRY(rule.methods, parse_list(reader, "methods", kMaxMethods));
  GB_TRY(rule.paths, parse_list(reader, "paths", kMaxPaths));
  if (!std::all_of(rule.methods.begin(), rule.methods.end(), is_method))
    return fail(reader.error(
        "methods", "must be method names in upper case; CONNECT is judged by what is inside"));
  for (const auto& path : rule.paths) {
    if (path.size() > kMaxPathBytes || !is_path_pattern(path))
      return fail(
          reader.error("paths",
                       "must be such as /v1/items, or /v1/* for all below; no other '*', no "
                       "query, '%', empty or dot segments"));
  }
  const bool has_any = !rule.methods.empty() || !rule.paths.empty();
  if (has_any && rule.protocols != bit(Protocol::kHttp))
    return fail(reader.error(rule.methods.empty() ? "paths" : "methods",
                             "needs \"protocols\": [\"http\"]: inside TLS nobody sees them"));
  return {};
}

Result<std::string> parse_host(const json::Reader& reader, const std::string& text, RuleKind kind) {
  if (text == "*") {
    if (kind == RuleKind::kDeny) return text;
    return fail(
        reader.error("host", "\"*\" is for deny rules; to allow all, set \"egress\": \"open\""));
  }
  const bool is_wildcard = text.starts_with("*.");
  const std::string host = normal_host(is_wildcard ? std::string_view(text).substr(2) : text);
  if (host.empty()) {
    const auto bare = text.substr(0, text.find('/'));
    if (parse_address(bare))
      return fail(reader.error("host", "is an address; write it as \"cidr\""));
    return fail(reader.error("host",
                             "must be a host name such as example.com or *.example.com: a wildcard "
                             "is the whole first label, international names in their xn-- form"));
  }
  if (kind == RuleKind::kDeny) return is_wildcard ? "*." + host : host;
  if (is_wildcard && host.find('.') == host.npos)
    return fail(reader.error("host", "would allow a whole top-level domain"));
  if (host == kOurZone || host_matches("*." + std::string(kOurZone), host))
    return fail(reader.error("host", "is a name of this server's own; set \"packages\""));
  return is_wildcard ? "*." + host : host;
}

Result<void> parse_destination(json::Reader& reader, RuleKind kind, Rule& rule) {
  GB_TRY(const auto host, reader.string("host", 1, kMaxHostTextBytes).optional());
  GB_TRY(const auto block, reader.string("cidr", 1, kMaxBlockTextBytes).optional());
  if (host.has_value() == block.has_value())
    return fail(reader.error("host", "a rule names either a host or a cidr"));
  if (host) {
    GB_TRY(rule.host, parse_host(reader, *host, kind));
    return {};
  }
  auto cidr = parse_cidr(*block);
  if (!cidr) return fail(reader.error("cidr", cidr.error().message));
  const auto floor = special_range(*cidr);
  if (kind == RuleKind::kAllow && !floor.empty())
    return fail(reader.error("cidr", "no rule can allow these addresses (" + std::string(floor) +
                                         "); the operator may open a named internal service"));
  rule.cidr = *cidr;
  return {};
}

Result<void> check_protocols(const json::Reader& reader, RuleKind kind, const Rule& rule) {
  const bool tcp = rule.protocols & bit(Protocol::kTcp), udp = rule.protocols & bit(Protocol::kUdp),
             icmp = rule.protocols & bit(Protocol::kIcmp);
  if ((udp || icmp) && !rule.cidr)
    return fail(reader.error("protocols", "udp and icmp carry no name, so they need a cidr"));
  if (icmp && (rule.protocols != bit(Protocol::kIcmp) || !rule.ports.empty()))
    return fail(reader.error("protocols", "icmp stands alone and has no ports"));
  if (kind == RuleKind::kAllow && (tcp || udp) && rule.ports.empty())
    return fail(reader.error("ports", "is required with tcp or udp"));
  return {};
}

bool is_only_dns(const Rule& rule) {
  return !rule.ports.empty() &&
         std::all_of(rule.ports.begin(), rule.ports.end(), [](const PortRange& range) {
           return range.first == range.last && (range.first == 53 || range.first == 853);
         });
}

Result<Rule> parse_rule(json::Reader& reader, RuleKind kind) {
  Rule rule;
  GB_TRYV(parse_destination(reader, kind, rule));
  GB_TRY(rule.ports, parse_ports(reader, "ports"));
  GB_TRY(rule.protocols, parse_protocols(reader));
  GB_TRYV(parse_request_part(reader, rule));
  GB_TRYV(check_protocols(reader, kind, rule));
  // A host may be an internal service that answers there.
  if (kind == RuleKind::kAllow && rule.cidr && is_only_dns(rule))
    return fail(reader.error("ports",
                             "no rule can allow DNS (53, 853): names are asked of the "
                             "sandbox's own resolver"));
  GB_TRYV(reader.done());
  return rule;
}

std::string range_text(const PortRange& range) {
  const std::string first = std::to_string(range.first);
  return range.first == range.last ? first : first + "-" + std::to_string(range.last);
}

// An allow rule without protocols: http on 80, tls on the rest.
void append_default_scope(bj::array& out, const PortRange& range) {
  constexpr uint16_t kHttpPort = 80;
  const auto add = [&](int first, int last, std::string_view protocol) {
    if (first > last) return;
    const PortRange part{static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
    out.emplace_back(std::string(protocol) + ":" + range_text(part));
  };
  if (range.last < kHttpPort || range.first > kHttpPort) return add(range.first, range.last, "tls");
  add(range.first, kHttpPort - 1, "tls");
  add(kHttpPort, kHttpPort, "http");
  add(kHttpPort + 1, range.last, "tls");
}

bj::array strings_json(const std::vector<std::string>& list) {
  bj::array out;
  for (const auto& item : list) out.emplace_back(item);
  return out;
}

}  // namespace

Result<std::vector<PortRange>> parse_ports(json::Reader& reader, std::string_view field) {
  const bj::value* value = reader.any(field);
  std::vector<PortRange> out;
  if (!value || value->is_null()) return out;
  const auto* array = value->if_array();
  if (!array || array->empty() || array->size() > kMaxPorts)
    return fail(reader.error(field, "must be an array of 1 to " + std::to_string(kMaxPorts) +
                                        " ports; leave it out for the default"));
  for (const auto& item : *array) {
    const auto range = to_range(item);
    if (!range)
      return fail(
          reader.error(field, "must be numbers from 1 to 65535, or ranges such as \"8000-8100\""));
    out.push_back(*range);
  }
  if (has_overlap(out)) return fail(reader.error(field, "names a port twice"));
  return out;
}

Result<std::vector<Rule>> parse_rules(json::Reader& reader, std::string_view field, RuleKind kind,
                                      const std::string& name) {
  GB_TRY(auto items, reader.objects(field, kMaxRules).or_default({}));
  std::vector<Rule> out;
  for (auto& item : items) {
    GB_TRY(auto rule, parse_rule(item, kind));
    rule.name = name + "[" + std::to_string(out.size()) + "]";
    for (const auto& earlier : out) {
      if (same_rule(earlier, rule))
        return fail(Error{Code::kInvalidArgument,
                          item.path() + ": is the same as " + earlier.name,
                          {{"field", item.path()}}});
    }
    out.push_back(std::move(rule));
  }
  return out;
}

bj::array ports_json(const std::vector<PortRange>& ports) {
  bj::array out;
  for (const auto& range : ports) {
    if (range.first == range.last)
      out.emplace_back(int64_t{range.first});
    else
      out.emplace_back(range_text(range));
  }
  return out;
}

bj::object rule_json(const Rule& rule) {
  bj::object out;
  if (rule.cidr)
    out["cidr"] = rule.cidr->text();
  else
    out["host"] = rule.host;
  if (!rule.ports.empty()) out["ports"] = ports_json(rule.ports);
  bj::array protocols;
  for (const Protocol protocol : kProtocols) {
    if (rule.protocols & bit(protocol)) protocols.emplace_back(protocol_name(protocol));
  }
  if (!protocols.empty()) out["protocols"] = std::move(protocols);
  if (!rule.methods.empty()) out["methods"] = strings_json(rule.methods);
  if (!rule.paths.empty()) out["paths"] = strings_json(rule.paths);
  return out;
}

bj::object limits_json(const EgressLimits& limits) {
  return {{"bandwidth", static_cast<int64_t>(limits.bandwidth)},
          {"connections", static_cast<int64_t>(limits.connections)},
          {"bytes", static_cast<int64_t>(limits.bytes)}};
}

bj::array scope_json(const Rule& rule, RuleKind kind) {
  bj::array out;
  auto ports = rule.ports;
  if (ports.empty() && kind == RuleKind::kAllow) ports = {{80, 80}, {443, 443}};
  if (rule.protocols == 0 && kind == RuleKind::kAllow) {
    for (const auto& range : ports) append_default_scope(out, range);
    return out;
  }
  std::vector<std::string> names;
  for (const Protocol protocol : kProtocols) {
    if (rule.protocols & bit(protocol)) names.emplace_back(protocol_name(protocol));
  }
  if (names.empty()) names.emplace_back("any");
  for (const auto& name : names) {
    if (ports.empty() || name == "icmp")
      out.emplace_back(name + ":*");
    else
      for (const auto& range : ports) out.emplace_back(name + ":" + range_text(range));
  }
  return out;
}

}  // namespace internal
}  // namespace glovebox::policy
