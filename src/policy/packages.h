// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// What may be installed through the registry proxy. Exact semantics: docs/package-policy.md.
namespace glovebox::policy {

enum class Registry { kPypi, kNpm, kDebian };
std::string_view registry_name(Registry registry);  // "pypi", "npm", "debian"

// "requests", "requests==2.31.0", "requests<3,>=2.30", "@scope/*", "evil*"; npm: "left-pad@1.3.0",
// "@scope/name@^2".
struct PackageRule {
  std::optional<Registry> registry;  // empty: any. Written "pypi:requests"
  // Normalised as the registry does, as written when it is for any; a "*" at the end matches any
  // rest.
  std::string name;
  std::string versions;  // as written after the name; empty: all
  std::string rule;      // what a verdict calls it: "packages.deny[0]"
  friend bool operator==(const PackageRule&, const PackageRule&) = default;
};

struct PackagePolicy {
  std::vector<Registry> registries;  // which are open at all
  std::vector<PackageRule> allow;    // empty: every package
  std::vector<PackageRule> deny;     // beats allow
  // Of a version, by the registry's upload time; a version without one counts as too young.
  uint64_t minimum_age_hours = 0;
  // False: npm lifecycle scripts are taken out of what is served, PyPI source distributions are not
  // served.
  bool install_scripts = true;
  // Only files whose hash the index gives; a sandbox's downloads must name it.
  bool require_hashes = false;
  bool offline = false;    // only what the cache holds
  uint64_t max_bytes = 0;  // downloaded by one sandbox; 0: none
  friend bool operator==(const PackagePolicy&, const PackagePolicy&) = default;
};

// {"registries", "allow", "deny", "minimum_age_hours", "install_scripts", "require_hashes",
// "offline", "max_bytes"}
Result<PackagePolicy> parse_package_policy(const boost::json::value& value, std::string_view path);
boost::json::value to_json(const PackagePolicy& policy);

struct PackageAttempt {
  Registry registry = Registry::kPypi;
  std::string name;                       // as asked for
  std::string version;                    // empty: the package as a whole (its index)
  std::optional<int64_t> uploaded_at_ms;  // unix time; empty: the registry does not say
  bool is_source = false;                 // an sdist
};

struct PackageVerdict {
  bool allowed = false;
  // "packages.deny[0]", "packages.allow", "packages.minimum_age_hours", "packages.registries",
  // "packages.install_scripts"; where files are served also "packages.offline",
  // "packages.max_bytes", ….
  std::string rule;
  std::string reason;  // one sentence; empty when allowed
};
PackageVerdict decide_package(const PackagePolicy& policy, const PackageAttempt& attempt,
                              int64_t now_ms);

// PEP 503 for PyPI ("Foo._Bar" -> "foo-bar"); npm and Debian names as they are.
std::string normal_package(Registry registry, std::string_view name);
// Does `version` satisfy `versions`: PEP 440 specifiers for pypi, semver ranges (^ ~ - || x) for
// npm, exact or prefix* for debian. False when either cannot be read.
bool version_matches(Registry registry, std::string_view versions, std::string_view version);

}  // namespace glovebox::policy
