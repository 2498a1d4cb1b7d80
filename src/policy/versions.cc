// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/versions.h"

#include <algorithm>

#include "policy/internal/pep440.h"
#include "policy/internal/semver.h"

namespace glovebox::policy::internal {
namespace {

constexpr size_t kMaxVersionBytes = 256;

bool is_debian_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '+' || c == '~' || c == ':' || c == '-';
}

bool is_debian_version(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_debian_char);
}

// A version, or the beginning of one and "*".
bool is_debian_range(std::string_view text) {
  if (!text.ends_with('*')) return is_debian_version(text);
  text.remove_suffix(1);
  return text.empty() || is_debian_version(text);
}

bool debian_matches(std::string_view pattern, std::string_view version) {
  if (!pattern.ends_with('*')) return pattern == version;
  pattern.remove_suffix(1);
  return version.starts_with(pattern);
}

}  // namespace

bool is_version(Registry registry, std::string_view version) {
  if (version.size() > kMaxVersionBytes) return false;
  switch (registry) {
    case Registry::kPypi:
      return pep440::parse(version).has_value();
    case Registry::kNpm:
      return semver::parse(version).has_value();
    case Registry::kDebian:
      return is_debian_version(version);
  }
  return false;
}

bool is_version_range(Registry registry, std::string_view versions) {
  if (versions.empty()) return false;
  switch (registry) {
    case Registry::kPypi:
      return pep440::is_specifiers(versions);
    case Registry::kNpm:
      return semver::is_range(versions);
    case Registry::kDebian:
      return is_debian_range(versions);
  }
  return false;
}

bool matches(Registry registry, std::string_view versions, std::string_view version,
             Prereleases prereleases) {
  if (versions.empty() || version.size() > kMaxVersionBytes) return false;
  switch (registry) {
    case Registry::kPypi:
      return pep440::matches(versions, version);
    case Registry::kNpm:
      return semver::matches(versions, version, prereleases == Prereleases::kInRange);
    case Registry::kDebian:
      return is_debian_range(versions) && is_debian_version(version) &&
             debian_matches(versions, version);
  }
  return false;
}

}  // namespace glovebox::policy::internal
