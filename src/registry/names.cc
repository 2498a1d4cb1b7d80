// SPDX-License-Identifier: Apache-2.0
#include "registry/names.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <tuple>

#include "base/text.h"
#include "http/message.h"
#include "policy/packages.h"

namespace glovebox::registry {
namespace {

constexpr size_t kMaxPypiName = 200, kMaxNpmName = 214, kMaxFileName = 255, kMaxVersion = 200;
constexpr std::string_view kSourceEndings[] = {".tar.gz", ".zip", ".tar.bz2", ".tar.xz", ".tgz"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

bool all_of(std::string_view text, bool (*test)(char)) { return std::all_of(text.begin(), text.end(), test); }

bool is_version_text(std::string_view text) {
  return !text.empty() && text.size() <= kMaxVersion &&
         all_of(text, [](char c) { return is_alnum(c) || std::string_view("._+!~-").find(c) != std::string_view::npos; });
}

bool is_npm_part(std::string_view part) {
  return !part.empty() && part != "." && part != ".." &&
         all_of(part, [](char c) { return is_alnum(c) || std::string_view("-_.~!'()*").find(c) != std::string_view::npos; });
}

std::string_view unscoped(std::string_view package) {
  const size_t slash = package.find('/');
  return slash == package.npos ? package : package.substr(slash + 1);
}

std::string normal(std::string_view name) { return policy::normal_package(policy::Registry::kPypi, name); }

}  // namespace

bool is_pypi_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxPypiName && is_alnum(name.front()) && is_alnum(name.back()) &&
         all_of(name, [](char c) { return is_alnum(c) || c == '.' || c == '_' || c == '-'; });
}

bool is_npm_name(std::string_view name) {
  if (name.size() > kMaxNpmName) return false;
  if (!name.starts_with('@')) return is_npm_part(name) && name.front() != '.' && name.front() != '-';
  const size_t slash = name.find('/');
  return slash != name.npos && is_npm_part(name.substr(1, slash - 1)) && is_npm_part(name.substr(slash + 1));
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxFileName && name != "." && name != ".." && all_of(name, [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && static_cast<unsigned char>(c) < 0x7F &&
           std::string_view("/\\%?#\"'<>&").find(c) == std::string_view::npos;
  });
}

namespace {

std::optional<PypiFile> read_wheel(std::string_view stem, std::string_view package) {
  // PEP 427: name-version(-build)?-python-abi-platform; none of them holds a '-'.
  const auto parts = split(stem, '-');
  if (parts.size() != 5 && parts.size() != 6) return std::nullopt;
  if (normal(parts[0]) != package || !is_version_text(parts[1])) return std::nullopt;
  return PypiFile{parts[1], false};
}

std::optional<PypiFile> read_source(std::string_view stem, std::string_view package) {
  // Old names are not unique ("a-b-1.0"): the package decides which '-' ends the name.
  for (size_t dash = stem.find('-'); dash != stem.npos; dash = stem.find('-', dash + 1)) {
    if (normal(stem.substr(0, dash)) != package) continue;
    const std::string_view version = stem.substr(dash + 1);
    if (is_version_text(version) && (is_digit(version[0]) || version[0] == 'v')) return PypiFile{std::string(version), true};
  }
  return std::nullopt;
}

}  // namespace

std::optional<PypiFile> read_pypi_file(std::string_view filename, std::string_view package) {
  if (!is_file_name(filename)) return std::nullopt;
  if (filename.ends_with(".whl")) return read_wheel(filename.substr(0, filename.size() - 4), package);
  for (const std::string_view ending : kSourceEndings) {
    if (filename.ends_with(ending)) return read_source(filename.substr(0, filename.size() - ending.size()), package);
  }
  return std::nullopt;
}

std::optional<std::string> npm_file_version(std::string_view filename, std::string_view package) {
  const std::string_view name = unscoped(package);
  if (!is_file_name(filename) || !filename.ends_with(".tgz") || !filename.starts_with(name)) return std::nullopt;
  filename.remove_prefix(name.size());
  filename.remove_suffix(4);
  if (!filename.starts_with('-') || !is_version_text(filename.substr(1))) return std::nullopt;
  return std::string(filename.substr(1));
}

std::string npm_file_name(std::string_view package, std::string_view version) {
  return std::string(unscoped(package)) + "-" + std::string(version) + ".tgz";
}

std::optional<DebianFile> read_debian_file(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const auto dot = file.rfind('.');
  if (dot == file.npos || (file.substr(dot) != ".deb" && file.substr(dot) != ".udeb")) return std::nullopt;
  const auto parts = split(file.substr(0, dot), '_');
  if (parts.size() != 3 || parts[0].empty() || parts[1].empty()) return std::nullopt;
  return DebianFile{parts[0], http::percent_decode(parts[1]).value_or(parts[1])};
}

namespace {

// Takes `digits` decimal digits and, if it is not 0, the character that must follow.
std::optional<int> take_number(std::string_view& text, size_t digits, char then) {
  if (text.size() < digits + (then ? 1 : 0) || !all_of(text.substr(0, digits), is_digit)) return std::nullopt;
  const auto number = parse_int(text.substr(0, digits));
  if (then && text[digits] != then) return std::nullopt;
  text.remove_prefix(digits + (then ? 1 : 0));
  return number ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
}

std::optional<int> take_offset_minutes(std::string_view text) {
  if (text.empty() || text == "Z" || text == "z") return 0;
  const int sign = text[0] == '+' ? 1 : text[0] == '-' ? -1 : 0;
  text.remove_prefix(1);
  const auto hours = take_number(text, 2, 0);
  if (text.starts_with(':')) text.remove_prefix(1);
  const auto minutes = take_number(text, 2, 0);
  if (sign == 0 || !hours || !minutes || !text.empty()) return std::nullopt;
  return sign * (*hours * 60 + *minutes);
}

int64_t take_milliseconds(std::string_view& text) {
  if (!text.starts_with('.')) return 0;
  text.remove_prefix(1);
  int64_t ms = 0;
  size_t digits = 0;
  for (; digits < text.size() && is_digit(text[digits]); ++digits) {
    if (digits < 3) ms = ms * 10 + (text[digits] - '0');
  }
  for (size_t i = digits; i < 3; ++i) ms *= 10;
  text.remove_prefix(digits);
  return ms;
}

}  // namespace

std::optional<int64_t> parse_time(std::string_view text) {
  using namespace std::chrono;
  const auto y = take_number(text, 4, '-'), mo = take_number(text, 2, '-');
  const auto d = take_number(text, 2, 0);
  if (!y || !mo || !d || text.empty() || (text[0] != 'T' && text[0] != 't' && text[0] != ' ')) return std::nullopt;
  text.remove_prefix(1);
  const auto h = take_number(text, 2, ':'), mi = take_number(text, 2, ':'), s = take_number(text, 2, 0);
  const year_month_day date{year(*y), month(static_cast<unsigned>(*mo)), day(static_cast<unsigned>(*d))};
  if (!h || !mi || !s || !date.ok() || *h > 23 || *mi > 59 || *s > 60) return std::nullopt;
  const int64_t ms = take_milliseconds(text);
  const auto offset = take_offset_minutes(text);
  if (!offset) return std::nullopt;
  const int64_t days = sys_days(date).time_since_epoch().count();
  return (((days * 24 + *h) * 60 + *mi - *offset) * 60 + *s) * 1000 + ms;
}

namespace {

struct Semver {
  std::array<std::string_view, 3> numbers;
  std::string_view pre;
};

std::optional<Semver> read_semver(std::string_view text) {
  text = text.substr(0, text.find('+'));
  Semver out;
  const size_t dash = text.find('-');
  if (dash != text.npos) {
    out.pre = text.substr(dash + 1);
    text = text.substr(0, dash);
  }
  for (size_t i = 0; i < 3; ++i) {
    const size_t dot = i < 2 ? text.find('.') : text.size();
    if (dot == text.npos) return std::nullopt;
    out.numbers[i] = text.substr(0, dot);
    if (out.numbers[i].empty() || !all_of(out.numbers[i], is_digit)) return std::nullopt;
    text.remove_prefix(std::min(dot + 1, text.size()));
  }
  return out;
}

// Decimal of any length; leading zeros do not count.
int compare_numbers(std::string_view a, std::string_view b) {
  a.remove_prefix(std::min(a.find_first_not_of('0'), a.size()));
  b.remove_prefix(std::min(b.find_first_not_of('0'), b.size()));
  return a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
}

int compare_identifiers(std::string_view a, std::string_view b) {
  const bool a_number = !a.empty() && all_of(a, is_digit), b_number = !b.empty() && all_of(b, is_digit);
  if (a_number && b_number) return compare_numbers(a, b);
  if (a_number != b_number) return a_number ? -1 : 1;
  return a.compare(b);
}

int compare_prereleases(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.empty() == b.empty() ? 0 : a.empty() ? 1 : -1;  // a release is above its prereleases
  const auto as = split(a, '.'), bs = split(b, '.');
  for (size_t i = 0; i < std::min(as.size(), bs.size()); ++i) {
    if (const int order = compare_identifiers(as[i], bs[i])) return order;
  }
  return as.size() == bs.size() ? 0 : as.size() < bs.size() ? -1 : 1;
}

}  // namespace

bool semver_less(std::string_view a, std::string_view b) {
  const auto x = read_semver(a), y = read_semver(b);
  if (!x || !y) return x.has_value() == y.has_value() ? a < b : !x.has_value();
  for (size_t i = 0; i < 3; ++i) {
    if (const int order = compare_numbers(x->numbers[i], y->numbers[i])) return order < 0;
  }
  return compare_prereleases(x->pre, y->pre) < 0;
}

bool is_prerelease(std::string_view version) {
  const auto parsed = read_semver(version);
  return !parsed || !parsed->pre.empty();
}

std::optional<std::vector<std::string>> path_segments(std::string_view path) {
  if (!path.starts_with('/')) return std::nullopt;
  std::vector<std::string> out;
  const auto raw = split(path.substr(1), '/');
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i].empty() && i + 1 == raw.size()) break;
    auto segment = http::percent_decode(raw[i]);
    if (!segment || segment->empty() || *segment == "." || *segment == "..") return std::nullopt;
    if (std::any_of(segment->begin(), segment->end(), is_control) || segment->find('\\') != segment->npos) return std::nullopt;
    const size_t slash = segment->find('/');
    if (slash == segment->npos) {
      out.push_back(std::move(*segment));
    } else if (segment->starts_with('@') && segment->find('/', slash + 1) == segment->npos && slash + 1 < segment->size()) {
      out.push_back(segment->substr(0, slash));
      out.push_back(segment->substr(slash + 1));
      if (out.back() == "." || out.back() == "..") return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace glovebox::registry
