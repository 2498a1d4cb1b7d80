// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/units.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace glovebox::cli {
namespace {

using std::chrono::milliseconds;

// A non-negative decimal number and the unit after it.
struct Quantity {
  double value = 0;
  std::string unit;
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0 || digits > 18 || text[0] == '.') return std::nullopt;
  const std::string number(text.substr(0, digits));
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return Quantity{value, std::string(text.substr(digits))};
}

std::optional<double> mib_of_unit(const std::string& unit) {
  static const std::map<std::string, double> units = {
      {"", 1},      {"m", 1},      {"mb", 1},      {"mib", 1},      {"g", 1024},
      {"gb", 1024}, {"gib", 1024}, {"t", 1 << 20}, {"tb", 1 << 20}, {"tib", 1 << 20}};
  std::string lower;
  for (const char c : unit) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  const auto found = units.find(lower);
  return found == units.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> millis_of_unit(const std::string& unit) {
  static const std::map<std::string, double> units = {{"ms", 1},   {"", 1000},    {"s", 1000},
                                                      {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
  const auto found = units.find(unit);
  return found == units.end() ? std::nullopt : std::optional(found->second);
}

std::string two_units(int64_t large, char large_unit, int64_t small, char small_unit) {
  std::string out = std::to_string(large) + large_unit;
  if (small > 0) out += std::to_string(small) + small_unit;
  return out;
}

}  // namespace

Result<int64_t> parse_size_mb(std::string_view text) {
  const auto quantity = parse_quantity(text);
  const auto factor = quantity ? mib_of_unit(quantity->unit) : std::nullopt;
  if (!factor)
    return fail(Code::kInvalidArgument,
                "'" + std::string(text) + "' is no size; write 512M, 2G or 1.5G");
  const double mib = quantity->value * *factor;
  if (mib < 1 || mib > 1e12 || mib != std::floor(mib)) {
    return fail(Code::kInvalidArgument,
                "'" + std::string(text) + "' must be a whole number of MiB, at least 1");
  }
  return static_cast<int64_t>(mib);
}

Result<milliseconds> parse_duration(std::string_view text) {
  const auto quantity = parse_quantity(text);
  const auto factor = quantity ? millis_of_unit(quantity->unit) : std::nullopt;
  if (!factor)
    return fail(Code::kInvalidArgument,
                "'" + std::string(text) + "' is no duration; write 500ms, 30s, 5m or 2h");
  const double millis = quantity->value * *factor;
  if (millis > 1e14) return fail(Code::kInvalidArgument, "'" + std::string(text) + "' is too long");
  return milliseconds(static_cast<int64_t>(std::llround(millis)));
}

Result<StringMap> parse_pairs(const std::vector<std::string>& pairs, bool from_environment) {
  StringMap out;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals == 0 || pair.empty())
      return fail(Code::kInvalidArgument, "'" + pair + "' has no name; write NAME=VALUE");
    if (equals != std::string::npos) {
      out[pair.substr(0, equals)] = pair.substr(equals + 1);
      continue;
    }
    if (!from_environment)
      return fail(Code::kInvalidArgument, "'" + pair + "' has no '='; write NAME=VALUE");
    const char* value = std::getenv(pair.c_str());
    if (value != nullptr) out[pair] = value;
  }
  return out;
}

Result<Mount> parse_mount(std::string_view text) {
  Mount mount;
  const size_t colon = text.find(':');
  mount.volume = text.substr(0, colon);
  if (colon != std::string_view::npos) mount.path = text.substr(colon + 1);
  if (mount.path.ends_with(":ro") || mount.path.ends_with(":rw")) {
    mount.read_only = mount.path.ends_with('o');
    mount.path.resize(mount.path.size() - 3);
  }
  if (!mount.volume.empty() && mount.path.starts_with('/')) return mount;
  return fail(Code::kInvalidArgument, "'" + std::string(text) + "' is no mount: write NAME:/PATH, or NAME:/PATH:ro");
}

std::string human_duration(milliseconds duration) {
  const int64_t ms = duration.count();
  if (ms < 1000) return std::to_string(ms) + "ms";
  if (ms < 60'000) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1fs", static_cast<double>(ms / 100) / 10);
    return text;
  }
  const int64_t seconds = ms / 1000;
  if (seconds < 3600) return two_units(seconds / 60, 'm', seconds % 60, 's');
  if (seconds < 86400) return two_units(seconds / 3600, 'h', seconds / 60 % 60, 'm');
  return two_units(seconds / 86400, 'd', seconds / 3600 % 24, 'h');
}

std::optional<WallTime> parse_iso_time(std::string_view iso) {
  const std::string text(iso);
  std::tm parts{};
  int millis = 0;
  const int fields =
      std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &millis);
  if (fields < 6) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) + milliseconds(millis);
}

std::string human_age(std::string_view iso, WallTime now) {
  const auto time = parse_iso_time(iso);
  if (!time) return "";
  const auto age = std::chrono::duration_cast<milliseconds>(now - *time);
  return age.count() >= 0 ? human_duration(age) : "in " + human_duration(-age);
}

}  // namespace glovebox::cli
