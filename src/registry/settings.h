// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "policy/packages.h"

namespace glovebox::registry {

// What the operator configured.
struct Settings {
  // Without a slash at the end; empty: this registry has no upstream. May hold credentials ("https://user:secret@host/…"), which are
  // sent to that origin only and never logged.
  std::string pypi;             // of the simple index: "https://host/simple"
  std::string npm;
  std::string debian;           // "http://host/debian"
  std::string debian_security;  // unless given: the sibling "debian-security" of an upstream that ends in "/debian"
  uint64_t cache_bytes = 4ull << 30;
  // Hosts of files (named by an index) that may have private addresses. Those of the upstreams always may.
  std::vector<std::string> file_hosts;
};

// Reads a "config" operation. kInvalidArgument names the field.
Result<Settings> parse_settings(const boost::json::value& operation);

}  // namespace glovebox::registry
