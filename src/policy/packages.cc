// SPDX-License-Identifier: Apache-2.0
#include "policy/packages.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"
#include "policy/internal/versions.h"

namespace glovebox::policy {
namespace {

namespace bj = boost::json;

constexpr std::array kRegistries{Registry::kPypi, Registry::kNpm, Registry::kDebian};
constexpr size_t kMaxRules = 1024;
constexpr size_t kMaxRuleBytes = 512;
constexpr size_t kMaxNameBytes = 214;
constexpr int64_t kMaxAgeHours = 24 * 3660;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr int64_t kMsPerHour = 3'600'000;

std::optional<Registry> registry_of(std::string_view name) {
  for (const Registry registry : kRegistries) {
    if (registry_name(registry) == name) return registry;
  }
  return std::nullopt;
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-' || c == '+' || c == '~' || c == '!' || c == '(' || c == ')' ||
         c == '\'';
}

// A package name with an optional "*" at its end; one "/" behind a scope.
bool is_name_pattern(std::string_view name) {
  if (name == "*") return true;
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  if (name.starts_with('@')) {
    const size_t slash = name.find('/');
    if (slash == name.npos || slash < 2) return false;
    const auto scope = name.substr(1, slash - 1);
    return std::all_of(scope.begin(), scope.end(), is_name_char) &&
           is_name_pattern(name.substr(slash + 1)) && name[slash + 1] != '@';
  }
  if (name.ends_with('*')) name.remove_suffix(1);
  return std::all_of(name.begin(), name.end(), is_name_char) && name[0] != '.' && name[0] != '-';
}

// Where the name ends and the versions begin, by what separates them: npm "@", PEP 440 operators,
// Debian "=".
size_t end_of_name(std::string_view text, std::optional<Registry> registry) {
  if (registry == Registry::kNpm) return std::min(text.find('@', 1), text.size());
  if (registry == Registry::kDebian) return std::min(text.find('='), text.size());
  const size_t operation = text.find_first_of("=<>!~ ");
  const size_t at = text.find('@', 1);
  return std::min({operation, registry ? text.npos : at, text.size()});
}

tl::unexpected<Error> bad_rule(std::string_view what) {
  return fail(Code::kInvalidArgument, std::string(what));
}

Result<PackageRule> parse_rule(std::string_view text) {
  PackageRule out;
  if (text.empty() || text.size() > kMaxRuleBytes) return bad_rule("must have 1 to 512 bytes");
  const size_t colon = text.find(':');
  if (colon != text.npos && registry_of(text.substr(0, colon))) {
    out.registry = registry_of(text.substr(0, colon));
    text.remove_prefix(colon + 1);
  }
  const size_t end = end_of_name(text, out.registry);
  const auto name = trim(text.substr(0, end));
  auto versions = trim(text.substr(end));
  if (!is_name_pattern(name))
    return bad_rule("must be a package such as requests, evil*, @scope/name or pypi:requests<3");
  if (name.starts_with('@') && !out.registry) out.registry = Registry::kNpm;
  if (!versions.empty()) {
    if (!out.registry) out.registry = versions[0] == '@' ? Registry::kNpm : Registry::kPypi;
    if (out.registry != Registry::kPypi) versions.remove_prefix(1);
    versions = trim(versions);
    if (!internal::is_version_range(*out.registry, versions))
      return bad_rule("has versions that " + std::string(registry_name(*out.registry)) +
                      " does not know: " + std::string(versions));
  }
  out.name = out.registry ? normal_package(*out.registry, name) : std::string(name);
  out.versions = versions;
  return out;
}

Result<std::vector<PackageRule>> parse_rules(json::Reader& reader, std::string_view field) {
  GB_TRY(const auto texts, reader.strings(field, kMaxRules).or_default({}));
  std::vector<PackageRule> out;
  for (const auto& text : texts) {
    auto rule = parse_rule(text);
    const std::string index = "item " + std::to_string(out.size()) + " ";
    if (!rule) return fail(reader.error(field, index + rule.error().message));
    const auto same = [&](const PackageRule& other) {
      return other.registry == rule->registry && other.name == rule->name &&
             other.versions == rule->versions;
    };
    if (std::any_of(out.begin(), out.end(), same))
      return fail(reader.error(field, index + "is there twice"));
    rule->rule = "packages." + std::string(field) + "[" + std::to_string(out.size()) + "]";
    out.push_back(*std::move(rule));
  }
  return out;
}

Result<std::vector<Registry>> parse_registries(json::Reader& reader) {
  GB_TRY(const auto names, reader.strings("registries", kRegistries.size()).or_default({}));
  std::vector<Registry> out;
  for (const auto& name : names) {
    const auto registry = registry_of(name);
    if (!registry || std::find(out.begin(), out.end(), *registry) != out.end())
      return fail(reader.error("registries", "must be of: pypi, npm, debian, each once"));
    out.push_back(*registry);
  }
  return out;
}

Result<void> check_rules(const json::Reader& reader, const PackagePolicy& policy) {
  for (const auto& allow : policy.allow) {
    for (const auto& deny : policy.deny) {
      if (allow.registry == deny.registry && allow.name == deny.name &&
          (deny.versions.empty() || deny.versions == allow.versions))
        return fail(reader.error(
            "allow", allow.rule + " can never allow anything: " + deny.rule + " denies all of it"));
    }
  }
  return {};
}

std::string rule_text(const PackageRule& rule) {
  std::string out = rule.registry ? std::string(registry_name(*rule.registry)) + ":" : "";
  out += rule.name;
  if (rule.versions.empty()) return out;
  if (rule.registry == Registry::kNpm) out += "@";
  if (rule.registry == Registry::kDebian) out += "=";
  return out + rule.versions;
}

bj::array rules_json(const std::vector<PackageRule>& rules) {
  bj::array out;
  for (const auto& rule : rules) out.emplace_back(rule_text(rule));
  return out;
}

bool names_package(const PackageRule& rule, Registry registry, const std::string& name) {
  if (rule.registry && rule.registry != registry) return false;
  if (!rule.name.ends_with('*')) return normal_package(registry, rule.name) == name;
  // PEP 503 would keep a "-" at the end of what stands before the "*", as in "evil-*".
  const auto prefix =
      normal_package(registry, std::string_view(rule.name).substr(0, rule.name.size() - 1));
  return name.starts_with(prefix);
}

// A rule with versions says nothing about the package as a whole, and everything about a version
// nobody can read.
bool denies(const PackageRule& rule, const PackageAttempt& attempt, const std::string& name) {
  if (!names_package(rule, attempt.registry, name)) return false;
  if (rule.versions.empty()) return true;
  return !attempt.version.empty() &&
         (!internal::is_version(attempt.registry, attempt.version) ||
          internal::matches(attempt.registry, rule.versions, attempt.version,
                            internal::Prereleases::kInRange));
}

bool allows(const PackageRule& rule, const PackageAttempt& attempt, const std::string& name) {
  return names_package(rule, attempt.registry, name) &&
         (rule.versions.empty() || attempt.version.empty() ||
          version_matches(attempt.registry, rule.versions, attempt.version));
}

std::string attempt_text(const PackageAttempt& attempt) {
  std::string out = std::string(registry_name(attempt.registry)) + " package " + attempt.name;
  return attempt.version.empty() ? out : out + " " + attempt.version;
}

PackageVerdict denied(std::string rule, std::string reason) {
  return {false, std::move(rule), std::move(reason)};
}

std::optional<PackageVerdict> check_age(const PackagePolicy& policy, const PackageAttempt& attempt,
                                        int64_t now_ms) {
  if (policy.minimum_age_hours == 0 || attempt.version.empty()) return std::nullopt;
  const std::string rule = "packages.minimum_age_hours";
  const std::string wanted = "at least " + std::to_string(policy.minimum_age_hours) + " hours old";
  if (!attempt.uploaded_at_ms)
    return denied(rule, attempt_text(attempt) + " has no upload time, and must be " + wanted + ".");
  const int64_t hours = (now_ms - *attempt.uploaded_at_ms) / kMsPerHour;
  if (now_ms - *attempt.uploaded_at_ms >=
      static_cast<int64_t>(policy.minimum_age_hours) * kMsPerHour)
    return std::nullopt;
  return denied(rule, attempt_text(attempt) + " was published " +
                          std::to_string(std::max<int64_t>(hours, 0)) + " hours ago, and must be " +
                          wanted + ".");
}

}  // namespace

std::string_view registry_name(Registry registry) {
  switch (registry) {
    case Registry::kPypi:
      return "pypi";
    case Registry::kNpm:
      return "npm";
    case Registry::kDebian:
      return "debian";
  }
  return "";
}

Result<PackagePolicy> parse_package_policy(const bj::value& value, std::string_view path) {
  json::Reader reader(value, std::string(path));
  PackagePolicy out;
  GB_TRY(out.registries, parse_registries(reader));
  GB_TRY(out.allow, parse_rules(reader, "allow"));
  GB_TRY(out.deny, parse_rules(reader, "deny"));
  GB_TRY(const auto age, reader.integer("minimum_age_hours", 0, kMaxAgeHours).or_default(0));
  GB_TRY(out.install_scripts, reader.boolean("install_scripts").or_default(true));
  GB_TRY(out.require_hashes, reader.boolean("require_hashes").or_default(false));
  GB_TRY(out.offline, reader.boolean("offline").or_default(false));
  GB_TRY(const auto bytes, reader.integer("max_bytes", 0, kMaxBytes).or_default(0));
  GB_TRYV(reader.done());
  out.minimum_age_hours = static_cast<uint64_t>(age);
  out.max_bytes = static_cast<uint64_t>(bytes);
  GB_TRYV(check_rules(reader, out));
  return out;
}

bj::value to_json(const PackagePolicy& policy) {
  bj::array registries;
  for (const Registry registry : policy.registries)
    registries.emplace_back(registry_name(registry));
  return bj::object{{"registries", std::move(registries)},
                    {"allow", rules_json(policy.allow)},
                    {"deny", rules_json(policy.deny)},
                    {"minimum_age_hours", static_cast<int64_t>(policy.minimum_age_hours)},
                    {"install_scripts", policy.install_scripts},
                    {"require_hashes", policy.require_hashes},
                    {"offline", policy.offline},
                    {"max_bytes", static_cast<int64_t>(policy.max_bytes)}};
}

PackageVerdict decide_package(const PackagePolicy& policy, const PackageAttempt& attempt,
                              int64_t now_ms) {
  const auto& open = policy.registries;
  if (std::find(open.begin(), open.end(), attempt.registry) == open.end())
    return denied("packages.registries", "The registry " +
                                             std::string(registry_name(attempt.registry)) +
                                             " is not open to this sandbox.");
  const std::string name = normal_package(attempt.registry, attempt.name);
  for (const auto& rule : policy.deny) {
    if (denies(rule, attempt, name))
      return denied(rule.rule,
                    attempt_text(attempt) + " is denied by \"" + rule_text(rule) + "\".");
  }
  std::string allowed_by = "packages.registries";
  if (!policy.allow.empty()) {
    const auto rule = std::find_if(policy.allow.begin(), policy.allow.end(),
                                   [&](const PackageRule& r) { return allows(r, attempt, name); });
    if (rule == policy.allow.end())
      return denied("packages.allow",
                    attempt_text(attempt) + " is not on the list of allowed packages.");
    allowed_by = rule->rule;
  }
  if (!policy.install_scripts && attempt.is_source && attempt.registry == Registry::kPypi)
    return denied("packages.install_scripts",
                  attempt_text(attempt) +
                      " is a source distribution, which runs code when it is "
                      "installed; only wheels are served.");
  if (auto too_young = check_age(policy, attempt, now_ms)) return *std::move(too_young);
  return {true, allowed_by, {}};
}

std::string normal_package(Registry registry, std::string_view name) {
  if (registry != Registry::kPypi) return std::string(name);
  std::string out;
  bool in_run = false;
  for (const char c : name) {
    const bool is_separator = c == '-' || c == '_' || c == '.';
    if (is_separator && in_run) continue;
    in_run = is_separator;
    out += is_separator ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

bool version_matches(Registry registry, std::string_view versions, std::string_view version) {
  return internal::matches(registry, versions, version, internal::Prereleases::kAsRegistry);
}

}  // namespace glovebox::policy
