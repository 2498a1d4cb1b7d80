// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/network_options.h"

#include <fstream>
#include <iterator>

#include "base/text.h"
#include "http/json.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
constexpr size_t kMaxPolicyBytes = 1 << 20;

tl::unexpected<Error> wrong(std::string_view text, const std::string& what) {
  return fail(Code::kInvalidArgument, "'" + std::string(text) + "' " + what);
}

// A destination and the ports behind it, "" for none.
struct Parts {
  std::string destination;
  std::vector<std::string> ports;
};

bool is_port(std::string_view text) {
  const auto port = parse_int(text);
  return port && *port >= 1 && *port <= 65535 && text[0] != '+';
}

bool is_port_or_range(std::string_view text) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return is_port(text);
  return is_port(text.substr(0, dash)) && is_port(text.substr(dash + 1));
}

// "[2a00::]/32:443" loses its brackets; without them the ports of an IPv6 block could not be told
// from the block.
Result<Parts> split_ports(std::string_view text) {
  Parts parts;
  std::string plain;
  size_t behind = 0;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return wrong(text, "has no closing bracket");
    plain = std::string(text.substr(1, end - 1));
    behind = end + 1;
  }
  const size_t colon = text.find(':', behind);
  parts.destination = plain + std::string(text.substr(behind, colon - behind));
  if (parts.destination.empty())
    return wrong(text, "names no destination; write HOST or HOST:PORT");
  if (colon == std::string_view::npos) return parts;
  parts.ports = split(std::string(text.substr(colon + 1)), ',');
  for (const std::string& port : parts.ports) {
    if (!is_port_or_range(port))
      return wrong(text,
                   "has a wrong port; write HOST:443 or HOST:80,8000-8100, and IPv6 in brackets");
  }
  return parts;
}

bj::value port_value(const std::string& port) {
  if (const auto number = parse_int(port)) return *number;
  return bj::string(port);
}

bj::array rules_for(const char* kind, const Parts& parts) {
  bj::array web, others, rules;
  for (const std::string& port : parts.ports) {
    (port == "80" || port == "443" ? web : others).push_back(port_value(port));
  }
  if (!web.empty() || parts.ports.empty()) {
    bj::object rule{{kind, parts.destination}};
    if (!web.empty()) rule["ports"] = std::move(web);
    rules.push_back(std::move(rule));
  }
  if (!others.empty()) {
    rules.push_back(bj::object{
        {kind, parts.destination}, {"ports", std::move(others)}, {"protocols", bj::array{"tcp"}}});
  }
  return rules;
}

bool is_address_or_block(std::string_view destination) {
  return destination.find_first_of("/:") != std::string_view::npos ||
         destination.find_first_not_of("0123456789.") == std::string_view::npos;
}

using Rules = Result<bj::array> (*)(std::string_view);

Result<void> add(bj::object& policy, const char* list, const std::vector<std::string>& texts,
                 Rules rules) {
  for (const std::string& text : texts) {
    GB_TRY(const auto found, rules(text));
    if (!policy.contains(list)) policy[list] = bj::array();
    auto& all = policy[list].get_array();
    all.insert(all.end(), found.begin(), found.end());
  }
  return {};
}

}  // namespace

Result<bj::array> allow_rules(std::string_view text) {
  GB_TRY(const auto parts, split_ports(text));
  if (is_address_or_block(parts.destination))
    return wrong(text, "is no host; use --allow-cidr for addresses and blocks");
  return rules_for("host", parts);
}

Result<bj::array> allow_cidr_rules(std::string_view text) {
  GB_TRY(const auto parts, split_ports(text));
  if (!is_address_or_block(parts.destination))
    return wrong(text, "is no address or block; use --allow for hosts");
  return rules_for("cidr", parts);
}

Result<bj::array> deny_rules(std::string_view text) {
  GB_TRY(const auto parts, split_ports(text));
  bj::object rule{{is_address_or_block(parts.destination) ? "cidr" : "host", parts.destination}};
  bj::array ports;
  for (const std::string& port : parts.ports) ports.push_back(port_value(port));
  if (!ports.empty()) rule["ports"] = std::move(ports);
  return bj::array{std::move(rule)};
}

Result<bj::object> read_policy(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail(Code::kInvalidArgument, file + ": cannot be read");
  std::string text(kMaxPolicyBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kMaxPolicyBytes)
    return fail(Code::kPayloadTooLarge, file + ": is larger than 1 MiB");
  auto parsed = json::parse_object(text);
  if (!parsed) return fail(Code::kInvalidArgument, file + ": " + parsed.error().message);
  return parsed->get_object();
}

Result<std::optional<bj::object>> network_policy(const NetworkOptions& options) {
  if (options.file) {
    GB_TRY(auto policy, read_policy(*options.file));
    return std::optional(std::move(policy));
  }
  bj::object policy;
  if (options.egress) policy["egress"] = *options.egress;
  bj::array presets;
  for (const std::string& preset : options.presets) presets.emplace_back(preset);
  if (!presets.empty()) policy["presets"] = std::move(presets);
  GB_TRYV(add(policy, "allow", options.allow, allow_rules));
  GB_TRYV(add(policy, "allow", options.allow_cidr, allow_cidr_rules));
  GB_TRYV(add(policy, "deny", options.deny, deny_rules));
  if (policy.empty()) return std::optional<bj::object>();
  return std::optional(std::move(policy));
}

}  // namespace glovebox::cli
