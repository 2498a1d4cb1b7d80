// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Where this machine gets Debian packages from, turned into where a template of another suite gets
// them from.
namespace glovebox::image {

struct AptSource {
  std::vector<std::string> types, uris, suites, components;
  std::string
      options;  // as in "[…]" of a one-line entry, without the brackets; Signed-By as a path only
};

// The two formats of sources.list(5). Entries that are disabled or not understood are left out.
std::vector<AptSource> parse_one_line_sources(std::string_view text);
std::vector<AptSource> parse_deb822_sources(std::string_view text);

// "deb […] URI SUITE COMPONENT…" lines for `suite`, from entries that hold Debian itself:
// `machine_codename` and its -updates and -security. kUnavailable, with what to set, when none can
// be used (mirror+file: and the like).
Result<std::vector<std::string>> sources_for_suite(const std::vector<AptSource>& machine,
                                                   const std::string& machine_codename,
                                                   const std::string& suite);

// All of it for this machine: /etc/apt, /etc/os-release. A given `mirror` wins over both.
Result<std::vector<std::string>> machine_sources(const std::string& mirror,
                                                 const std::string& suite);

// The Acquire settings of the machine that reach its mirror (proxies, certificates, date checks),
// as apt.conf lines, from the output of `apt-config dump`.
std::vector<std::string> acquire_options(std::string_view apt_config_dump);

}  // namespace glovebox::image
