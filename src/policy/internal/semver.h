// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Semantic versions and ranges as npm reads them (node-semver 7, strict).
namespace glovebox::policy::internal::semver {

struct Version {
  uint64_t major = 0, minor = 0, patch = 0;
  std::vector<std::string> prerelease;
  bool same_core(const Version& other) const;
};

std::optional<Version> parse(std::string_view text);  // build metadata is dropped
std::strong_ordering compare(const Version& a, const Version& b);

bool is_range(std::string_view text);
// False when either text cannot be read.
bool matches(std::string_view range, std::string_view version, bool include_prereleases);

}  // namespace glovebox::policy::internal::semver
