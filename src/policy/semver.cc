// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/semver.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/text.h"

namespace glovebox::policy::internal::semver {
namespace {

constexpr uint64_t kMaxNumber = 9007199254740991;  // what npm's numbers can hold exactly
constexpr size_t kMaxVersionBytes = 256;
constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_identifier_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}
bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// A number without leading zeros.
std::optional<uint64_t> read_number(std::string_view text) {
  if (!is_number(text) || text.size() > 16 || (text.size() > 1 && text[0] == '0'))
    return std::nullopt;
  const auto value = parse_int(text);
  if (!value || static_cast<uint64_t>(*value) > kMaxNumber) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

bool is_identifiers(std::string_view text, bool allows_leading_zeros) {
  for (const auto& part : split(text, '.')) {
    if (part.empty() || !std::all_of(part.begin(), part.end(), is_identifier_char)) return false;
    if (!allows_leading_zeros && is_number(part) && part.size() > 1 && part[0] == '0') return false;
  }
  return true;
}

std::strong_ordering compare_identifiers(const std::string& a, const std::string& b) {
  const bool a_is_number = is_number(a), b_is_number = is_number(b);
  if (a_is_number != b_is_number)
    return a_is_number ? std::strong_ordering::less : std::strong_ordering::greater;
  if (a_is_number && a.size() != b.size()) return a.size() <=> b.size();
  return a <=> b;
}

// "1.2.x-beta": numbers, or nothing for x, X, * and what is not written.
struct Partial {
  std::optional<uint64_t> major, minor, patch;
  std::string prerelease;
  bool has_gap = false;  // a number behind an x: "1.x.3"
};

// False when it is neither a number nor a wildcard.
bool read_part(std::string_view text, std::optional<uint64_t>& out) {
  if (text == "x" || text == "X" || text == "*") return true;
  out = read_number(text);
  return out.has_value();
}

std::optional<Partial> parse_partial(std::string_view text) {
  text = text.substr(std::min(text.find_first_not_of("v="), text.size()));
  Partial out;
  const size_t dash = text.find('-');
  const auto parts = split(text.substr(0, dash), '.');
  if (dash != text.npos) {
    out.prerelease = text.substr(dash + 1);
    if (parts.size() != 3 || !is_identifiers(out.prerelease, false)) return std::nullopt;
  }
  std::array<std::optional<uint64_t>*, 3> slots{&out.major, &out.minor, &out.patch};
  if (parts.empty() || parts.size() > slots.size()) return std::nullopt;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!read_part(parts[i], *slots[i])) return std::nullopt;
  }
  out.has_gap = (!out.major && (out.minor || out.patch)) || (!out.minor && out.patch);
  return out;
}

enum class Op { kEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

struct Comparator {
  Op op = Op::kEqual;
  Version version;
};
using Comparators = std::vector<Comparator>;  // all must hold; empty: any version

Version make(uint64_t major, uint64_t minor, uint64_t patch, std::string_view prerelease = {}) {
  Version out{major, minor, patch, {}};
  if (!prerelease.empty()) out.prerelease = split(prerelease, '.');
  return out;
}

// The least of all versions that begin so, pre-releases included where asked for.
Comparator from(uint64_t major, uint64_t minor, uint64_t patch, bool include) {
  return {Op::kGreaterEqual, make(major, minor, patch, include ? "0" : "")};
}
Comparator below(uint64_t major, uint64_t minor, uint64_t patch) {
  return {Op::kLess, make(major, minor, patch, "0")};
}
Comparator at_least(const Partial& p) {
  return {Op::kGreaterEqual, make(*p.major, *p.minor, *p.patch, p.prerelease)};
}
Comparators nothing() {
  return {below(0, 0, 0)};
}

Comparators tilde(const Partial& p, bool include) {
  if (!p.major) return {};
  if (!p.minor) return {from(*p.major, 0, 0, include), below(*p.major + 1, 0, 0)};
  const auto end = below(*p.major, *p.minor + 1, 0);
  if (!p.patch) return {from(*p.major, *p.minor, 0, include), end};
  return {at_least(p), end};
}

Comparators caret(const Partial& p, bool include) {
  if (!p.major) return {};
  if (!p.minor) return {from(*p.major, 0, 0, include), below(*p.major + 1, 0, 0)};
  const auto start = p.patch ? at_least(p) : from(*p.major, *p.minor, 0, include);
  if (*p.major != 0) return {start, below(*p.major + 1, 0, 0)};
  if (*p.minor != 0 || !p.patch) return {start, below(0, *p.minor + 1, 0)};
  return {start, below(0, 0, *p.patch + 1)};
}

// Without a comparison, or with "=": "1.2.x".
Comparators x_range(const Partial& p, bool include) {
  if (!p.minor) return {from(*p.major, 0, 0, include), below(*p.major + 1, 0, 0)};
  return {from(*p.major, *p.minor, 0, include), below(*p.major, *p.minor + 1, 0)};
}

// ">1.2" begins behind all of 1.2, "<=1.2" ends there.
Comparators x_comparison(Op op, const Partial& p, bool include) {
  const uint64_t minor = p.minor.value_or(0);
  const uint64_t next_major = p.minor ? *p.major : *p.major + 1;
  const uint64_t next_minor = p.minor ? *p.minor + 1 : 0;
  switch (op) {
    case Op::kGreater:
      return {from(next_major, next_minor, 0, include)};
    case Op::kGreaterEqual:
      return {from(*p.major, minor, 0, include)};
    case Op::kLess:
      return {below(*p.major, minor, 0)};
    case Op::kLessEqual:
      return {below(next_major, next_minor, 0)};
    case Op::kEqual:
      break;
  }
  return x_range(p, include);
}

std::optional<Comparators> comparison(Op op, const Partial& p, bool include) {
  if (p.has_gap) return std::nullopt;
  if (!p.major) return op == Op::kLess || op == Op::kGreater ? nothing() : Comparators();
  if (!p.patch) return x_comparison(op, p, include);
  return Comparators{{op, make(*p.major, *p.minor, *p.patch, p.prerelease)}};
}

std::optional<Comparators> parse_comparator(std::string_view text, bool include) {
  static constexpr std::array<std::pair<std::string_view, Op>, 5> kOps{{{">=", Op::kGreaterEqual},
                                                                        {"<=", Op::kLessEqual},
                                                                        {">", Op::kGreater},
                                                                        {"<", Op::kLess},
                                                                        {"=", Op::kEqual}}};
  for (const std::string_view mark : {"~>", "~", "^"}) {
    if (!text.starts_with(mark)) continue;
    const auto partial = parse_partial(text.substr(mark.size()));
    if (!partial) return std::nullopt;
    return mark == "^" ? caret(*partial, include) : tilde(*partial, include);
  }
  Op op = Op::kEqual;
  for (const auto& [mark, candidate] : kOps) {
    if (!text.starts_with(mark)) continue;
    text.remove_prefix(mark.size());
    op = candidate;
    break;
  }
  const auto partial = parse_partial(text);
  return partial ? comparison(op, *partial, include) : std::nullopt;
}

// "1.2 - 2.3.4", both ends included.
std::optional<Comparators> hyphen(std::string_view low, std::string_view high, bool include) {
  const auto a = parse_partial(low), b = parse_partial(high);
  if (!a || !b || low.starts_with('=') || high.starts_with('=')) return std::nullopt;
  Comparators out;
  const bool a_is_whole = a->major && a->minor && a->patch;
  if (a_is_whole && (!a->prerelease.empty() || !include))
    out.push_back(at_least(*a));
  else if (a->major)
    out.push_back(
        from(*a->major, a->minor.value_or(0), a->minor ? a->patch.value_or(0) : 0, include));
  if (!b->major) return out;
  if (!b->minor)
    out.push_back(below(*b->major + 1, 0, 0));
  else if (!b->patch)
    out.push_back(below(*b->major, *b->minor + 1, 0));
  else if (b->prerelease.empty() && include)
    out.push_back(below(*b->major, *b->minor, *b->patch + 1));
  else
    out.push_back({Op::kLessEqual, make(*b->major, *b->minor, *b->patch, b->prerelease)});
  return out;
}

// Drops "+build" wherever it stands.
std::string without_build(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '+') {
      out += text[i];
      continue;
    }
    while (i + 1 < text.size() && (is_identifier_char(text[i + 1]) || text[i + 1] == '.')) ++i;
  }
  return out;
}

bool is_operator(std::string_view text) {
  return text.find_first_not_of("<>=~^") == text.npos;
}

// Words; an operator that stands alone belongs to the version behind it. Nullopt when there is
// none.
std::optional<std::vector<std::string>> words_of(std::string_view text) {
  std::vector<std::string> out;
  bool is_open = false;
  for (;;) {
    text = trim(text);
    if (text.empty()) break;
    const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
    if (is_open && is_operator(word.substr(0, 1))) return std::nullopt;
    if (is_open)
      out.back() += word;
    else
      out.emplace_back(word);
    is_open = !is_open && is_operator(word);
    text.remove_prefix(word.size());
  }
  if (is_open) return std::nullopt;
  return out;
}

std::optional<Comparators> parse_set(std::string_view text, bool include) {
  const auto words = words_of(without_build(text));
  if (!words) return std::nullopt;
  if (words->size() == 3 && (*words)[1] == "-") return hyphen((*words)[0], (*words)[2], include);
  Comparators out;
  for (const auto& word : *words) {
    auto part = parse_comparator(word, include);
    if (!part) return std::nullopt;
    out.insert(out.end(), part->begin(), part->end());
  }
  // Everything is at least this, so it says nothing.
  const auto lowest = from(0, 0, 0, include);
  std::erase_if(out, [&](const Comparator& c) {
    return c.op == Op::kGreaterEqual && compare(c.version, lowest.version) == 0;
  });
  return out;
}

std::optional<std::vector<Comparators>> parse_range(std::string_view text, bool include) {
  std::vector<Comparators> out;
  for (;;) {
    const size_t bar = text.find("||");
    auto set = parse_set(text.substr(0, bar), include);
    if (!set) return std::nullopt;
    out.push_back(*std::move(set));
    if (bar == text.npos) break;
    text.remove_prefix(bar + 2);
  }
  const auto is_any = [](const Comparators& set) { return set.empty(); };
  if (std::any_of(out.begin(), out.end(), is_any)) out = {{}};
  return out;
}

bool holds(const Comparator& c, const Version& v) {
  const auto order = compare(v, c.version);
  switch (c.op) {
    case Op::kEqual:
      return order == 0;
    case Op::kLess:
      return order < 0;
    case Op::kLessEqual:
      return order <= 0;
    case Op::kGreater:
      return order > 0;
    case Op::kGreaterEqual:
      return order >= 0;
  }
  return false;
}

bool holds_all(const Comparators& set, const Version& v, bool include) {
  if (!std::all_of(set.begin(), set.end(), [&](const Comparator& c) { return holds(c, v); }))
    return false;
  if (v.prerelease.empty() || include) return true;
  return std::any_of(set.begin(), set.end(), [&](const Comparator& c) {
    return !c.version.prerelease.empty() && c.version.same_core(v);
  });
}

}  // namespace

bool Version::same_core(const Version& other) const {
  return major == other.major && minor == other.minor && patch == other.patch;
}

std::optional<Version> parse(std::string_view text) {
  text = trim(text);
  if (text.size() > kMaxVersionBytes) return std::nullopt;
  if (text.starts_with('v')) text.remove_prefix(1);
  const size_t plus = text.find('+');
  if (plus != text.npos && !is_identifiers(text.substr(plus + 1), true)) return std::nullopt;
  text = text.substr(0, plus);
  const size_t dash = text.find('-');
  const auto numbers = split(text.substr(0, dash), '.');
  if (numbers.size() != 3) return std::nullopt;
  const auto major = read_number(numbers[0]), minor = read_number(numbers[1]),
             patch = read_number(numbers[2]);
  if (!major || !minor || !patch) return std::nullopt;
  if (dash == text.npos) return make(*major, *minor, *patch);
  if (!is_identifiers(text.substr(dash + 1), false)) return std::nullopt;
  return make(*major, *minor, *patch, text.substr(dash + 1));
}

std::strong_ordering compare(const Version& a, const Version& b) {
  const auto core = std::tie(a.major, a.minor, a.patch) <=> std::tie(b.major, b.minor, b.patch);
  if (core != 0) return core;
  if (a.prerelease.empty() != b.prerelease.empty())
    return a.prerelease.empty() ? std::strong_ordering::greater : std::strong_ordering::less;
  const size_t common = std::min(a.prerelease.size(), b.prerelease.size());
  for (size_t i = 0; i < common; ++i) {
    const auto order = compare_identifiers(a.prerelease[i], b.prerelease[i]);
    if (order != 0) return order;
  }
  return a.prerelease.size() <=> b.prerelease.size();
}

bool is_range(std::string_view text) {
  return parse_range(text, false).has_value();
}

bool matches(std::string_view range, std::string_view version, bool include_prereleases) {
  const auto parsed = parse(version);
  const auto sets = parse_range(range, include_prereleases);
  if (!parsed || !sets) return false;
  return std::any_of(sets->begin(), sets->end(), [&](const Comparators& set) {
    return holds_all(set, *parsed, include_prereleases);
  });
}

}  // namespace glovebox::policy::internal::semver
