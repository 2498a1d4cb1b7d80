// SPDX-License-Identifier: Apache-2.0
// Feeds one text to every parser of the module: as a policy in JSON, and as address, block, host,
// path and, where it holds a tab, as range and version. What was understood must come back from its
// JSON, and no policy may allow an address within the floor but that of an internal service under
// its name.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "http/json.h"
#include "policy/egress.h"
#include "policy/internal/host.h"
#include "policy/internal/versions.h"

namespace {

using namespace glovebox::policy;
namespace json = glovebox::json;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

constexpr std::string_view kService = "db.corp.example";

const Operator& the_operator() {
  static const Operator op = [] {
    const auto value =
        json::parse(R"({"deny": [{"host": "*.evil.test"}], "own_addresses": ["20.9.9.9"],
        "internal": [{"host": "db.corp.example", "cidr": "10.1.0.0/16", "ports": [443, 5432]}]})");
    return parse_operator(*value).value();
  }();
  return op;
}

bool is_open_by_name(const Attempt& attempt) {
  const bool is_service_port = attempt.port == 443 || attempt.port == 5432;
  return attempt.host == kService && is_service_port &&
         the_operator().internal[0].cidr.contains(*attempt.address);
}

// Attempts at addresses within the floor, at every one of the policy's own hosts and ports among
// others.
void try_floor(const Evaluator& evaluator) {
  std::vector<std::string> hosts{"", std::string(kService), "a.example", "x.evil.test"};
  std::vector<uint16_t> ports{0, 22, 53, 80, 443, 853, 5432};
  for (const auto& rule : evaluator.allow()) {
    if (!rule.host.empty())
      hosts.push_back(rule.host.starts_with("*.") ? "a" + rule.host.substr(1) : rule.host);
    if (!rule.ports.empty()) ports.push_back(rule.ports[0].first);
    if (hosts.size() > 12) break;
  }
  for (const std::string_view text :
       {"127.0.0.1", "10.1.2.3", "10.2.0.1", "169.254.169.254", "::1", "::ffff:20.0.0.1",
        "64:ff9b::a00:1", "2002:7f00:1::", "fe80::1", "20.9.9.9", "255.255.255.255"}) {
    for (const auto& host : hosts) {
      for (const uint16_t port : ports) {
        for (const auto protocol :
             {Protocol::kTls, Protocol::kHttp, Protocol::kTcp, Protocol::kUdp, Protocol::kIcmp}) {
          Attempt attempt;
          attempt.protocol = protocol;
          attempt.host = host;
          attempt.address = parse_address(text);
          attempt.port = port;
          attempt.method = "GET";
          attempt.path = "/";
          const Verdict verdict = evaluator.decide(attempt);
          require(!verdict.allowed || is_open_by_name(attempt));
          require(!verdict.rule.empty() && verdict.allowed == verdict.reason.empty());
          require(!host.ends_with(".evil.test") || verdict.rule == "operator.deny[0]");
        }
      }
    }
  }
}

void try_json(std::string_view text) {
  const auto value = json::parse(text);
  if (!value) return;
  if (const auto policy = parse_network_policy(*value)) {
    const auto again = parse_network_policy(json::parse(json::to_text(to_json(*policy))).value());
    require(again && *again == *policy);
    (void)check_within(*policy, the_operator());
    const Evaluator evaluator(*policy, the_operator());
    (void)evaluator.effective();
    try_floor(evaluator);
  }
  if (const auto op = parse_operator(*value)) {
    const auto again = parse_operator(to_json(*op));
    require(again && *again == *op);
  }
  if (const auto packages = parse_package_policy(*value, "p")) {
    const auto again = parse_package_policy(to_json(*packages), "p");
    require(again && *again == *packages);
  }
}

void try_address(std::string_view text) {
  if (const auto address = parse_address(text)) {
    require(parse_address(address->text()) == *address);
    (void)special_range(*address);
    require(normal_host(text).empty());
  }
  if (const auto block = parse_cidr(text)) {
    require(parse_cidr(block->text()).value() == *block);
    require(block->contains(block->base));
    // A block that is special throughout begins with a special address.
    require(special_range(*block).empty() || !special_range(block->base).empty());
  }
}

void try_host(std::string_view text) {
  const std::string host = normal_host(text);
  if (!host.empty()) {
    require(normal_host(host) == host);
    require(host_matches(host, host) && !host_matches("*." + host, host) &&
            host_matches("*." + host, "a." + host));
    require(!parse_address(host));
  }
  for (const std::string_view pattern : {"/", "/*", "/v1/*"})
    (void)internal::match_path(pattern, text);
  if (internal::is_path_pattern(text) && !text.ends_with("*"))
    require(internal::match_path(text, text) == internal::PathMatch::kYes);
}

void try_versions(std::string_view text) {
  const size_t tab = text.find('\t');
  if (tab == text.npos) return;
  const auto range = text.substr(0, tab), version = text.substr(tab + 1);
  for (const Registry registry : {Registry::kPypi, Registry::kNpm, Registry::kDebian}) {
    (void)normal_package(registry, range);
    const bool matches = version_matches(registry, range, version);
    require(!matches || internal::is_version_range(registry, range));
    // A range that names no pre-release of its own reaches as far, or farther, when it takes
    // pre-releases in.
    const bool has_dash = range.find('-') != range.npos;
    if (matches && !has_dash)
      require(internal::matches(registry, range, version, internal::Prereleases::kInRange));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_json(text);
  try_address(text);
  try_host(text);
  try_versions(text);
  return 0;
}
