// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"

// What people write on a command line, and what they like to read. Errors are kInvalidArgument and
// name the text.
namespace glovebox::cli {

using StringMap = std::map<std::string, std::string>;

// "512M", "2G", "1.5GiB", "1T"; a plain number counts MiB. Whole MiB, at least 1.
Result<int64_t> parse_size_mb(std::string_view text);
// "500ms", "30s", "5m", "2h", "1d"; a plain number counts seconds.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
// {"A=1", "B=x=y"}. With `from_environment`, a name alone takes this program's value and is left
// out when that is not set.
Result<StringMap> parse_pairs(const std::vector<std::string>& pairs, bool from_environment);

// "NAME:/PATH" or "NAME:/PATH:ro": the volume's name or id, the path, and whether it is read-only.
struct Mount {
  std::string volume, path;
  bool read_only = false;
};
Result<Mount> parse_mount(std::string_view text);

std::string human_duration(
    std::chrono::milliseconds duration);  // "820ms", "5.2s", "3m20s", "2h5m", "4d3h"
// How long before now; "in 3m20s" for times to come; "" when the text is no time.
std::string human_age(std::string_view iso, WallTime now);
std::optional<WallTime> parse_iso_time(std::string_view iso);

}  // namespace glovebox::cli
