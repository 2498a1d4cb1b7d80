// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/pep440.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace glovebox::policy::internal::pep440 {
namespace {

constexpr std::string_view kSpaces = " \t\n\r\f\v";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_separator(char c) {
  return c == '-' || c == '_' || c == '.';
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

// Reads lower-case text from the left. Each read takes something and says so, or takes nothing.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void take_separator() {
    if (!rest_.empty() && is_separator(rest_[0])) rest_.remove_prefix(1);
  }
  std::optional<Number> number() {
    const size_t n = std::find_if_not(rest_.begin(), rest_.end(), is_digit) - rest_.begin();
    if (n == 0) return std::nullopt;
    const auto digits = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return Number{std::string(digits.substr(std::min(digits.find_first_not_of('0'), n)))};
  }
  std::string_view local_part() {
    const auto is_part = [](char c) { return is_digit(c) || is_letter(c); };
    const size_t n = std::find_if_not(rest_.begin(), rest_.end(), is_part) - rest_.begin();
    const auto out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  std::string_view rest() const { return rest_; }
  void reset(std::string_view rest) { rest_ = rest; }

 private:
  std::string_view rest_;
};

// [sep] word [sep] [number], as in ".post-1"; nothing is taken when no word of `words` is there.
template <size_t N>
std::optional<std::pair<size_t, Number>> read_part(Cursor& cursor,
                                                   const std::array<std::string_view, N>& words) {
  const auto before = cursor.rest();
  cursor.take_separator();
  for (size_t i = 0; i < N; ++i) {
    if (!cursor.take(words[i])) continue;
    cursor.take_separator();
    return std::pair(i, cursor.number().value_or(Number{}));
  }
  cursor.reset(before);
  return std::nullopt;
}

std::optional<Version::Pre> read_pre(Cursor& cursor) {
  static constexpr std::array<std::string_view, 8> kWords{"alpha",   "a",   "beta", "b",
                                                          "preview", "pre", "c",    "rc"};
  static constexpr std::string_view kKinds = "aabbrrrr";
  auto part = read_part(cursor, kWords);
  if (!part) return std::nullopt;
  return Version::Pre{kKinds[part->first], std::move(part->second)};
}

std::optional<Number> read_post(Cursor& cursor) {
  static constexpr std::array<std::string_view, 3> kWords{"post", "rev", "r"};
  const auto before = cursor.rest();
  if (cursor.take("-")) {
    if (auto number = cursor.number()) return number;
    cursor.reset(before);
  }
  auto part = read_part(cursor, kWords);
  if (!part) return std::nullopt;
  return std::move(part->second);
}

std::optional<Number> read_dev(Cursor& cursor) {
  static constexpr std::array<std::string_view, 1> kWords{"dev"};
  auto part = read_part(cursor, kWords);
  if (!part) return std::nullopt;
  return std::move(part->second);
}

bool read_release(Cursor& cursor, Version& out) {
  cursor.take("v");
  auto first = cursor.number();
  if (!first) return false;
  if (cursor.take("!")) {
    out.epoch = *std::move(first);
    first = cursor.number();
    if (!first) return false;
  }
  out.release.push_back(*std::move(first));
  for (;;) {
    const auto before = cursor.rest();
    if (!cursor.take(".")) return true;
    auto next = cursor.number();
    if (!next) {
      cursor.reset(before);
      return true;
    }
    out.release.push_back(*std::move(next));
  }
}

bool read_local(Cursor& cursor, Version& out) {
  if (!cursor.take("+")) return true;
  do {
    const auto text = cursor.local_part();
    if (text.empty()) return false;
    LocalPart part;
    part.is_number = std::all_of(text.begin(), text.end(), is_digit);
    if (part.is_number)
      part.number = *Cursor(text).number();
    else
      part.text = text;
    out.local.push_back(std::move(part));
    if (cursor.at_end() || !is_separator(cursor.rest()[0])) return true;
    cursor.take_separator();
  } while (true);
}

std::strong_ordering compare_releases(const std::vector<Number>& a, const std::vector<Number>& b) {
  static const Number kZero;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const auto order = (i < a.size() ? a[i] : kZero) <=> (i < b.size() ? b[i] : kZero);
    if (order != 0) return order;
  }
  return std::strong_ordering::equal;
}

// A dev release of no pre-release comes before all pre-releases, no pre-release after them.
int pre_rank(const Version& v) {
  if (v.pre) return 1;
  return !v.post && v.dev ? 0 : 2;
}

std::strong_ordering compare_pre(const Version& a, const Version& b) {
  if (pre_rank(a) != pre_rank(b)) return pre_rank(a) <=> pre_rank(b);
  if (!a.pre) return std::strong_ordering::equal;
  if (a.pre->kind != b.pre->kind) return a.pre->kind <=> b.pre->kind;
  return a.pre->number <=> b.pre->number;
}

// Absent comes first (post) or last (dev).
std::strong_ordering compare_optional(const std::optional<Number>& a,
                                      const std::optional<Number>& b, bool absent_is_first) {
  if (a && b) return *a <=> *b;
  if (!a && !b) return std::strong_ordering::equal;
  const bool a_is_first = a.has_value() != absent_is_first;
  return a_is_first ? std::strong_ordering::less : std::strong_ordering::greater;
}

std::strong_ordering compare_local(const std::vector<LocalPart>& a,
                                   const std::vector<LocalPart>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    if (a[i].is_number != b[i].is_number)
      return a[i].is_number ? std::strong_ordering::greater : std::strong_ordering::less;
    return a[i].is_number ? a[i].number <=> b[i].number : a[i].text <=> b[i].text;
  }
  return a.size() <=> b.size();
}

Version without_local(Version v) {
  v.local.clear();
  return v;
}

bool same_base(const Version& a, const Version& b) {
  return a.epoch == b.epoch && compare_releases(a.release, b.release) == 0;
}

bool is_prerelease(const Version& v) {
  return v.pre || v.dev;
}

// The version's epoch and release begin with `prefix`; missing numbers are zeros.
bool has_prefix(const Version& v, const Version& prefix) {
  if (v.epoch != prefix.epoch) return false;
  static const Number kZero;
  for (size_t i = 0; i < prefix.release.size(); ++i) {
    if ((i < v.release.size() ? v.release[i] : kZero) != prefix.release[i]) return false;
  }
  return true;
}

enum class Op { kCompatible, kEqual, kNotEqual, kLessEqual, kGreaterEqual, kLess, kGreater, kText };

struct Specifier {
  Op op = Op::kEqual;
  bool is_prefix = false;  // "==1.2.*"
  Version version;
  std::string text;  // of kText, lower case
};

std::optional<Op> read_op(Cursor& cursor) {
  static constexpr std::array<std::pair<std::string_view, Op>, 8> kOps{{{"===", Op::kText},
                                                                        {"~=", Op::kCompatible},
                                                                        {"==", Op::kEqual},
                                                                        {"!=", Op::kNotEqual},
                                                                        {"<=", Op::kLessEqual},
                                                                        {">=", Op::kGreaterEqual},
                                                                        {"<", Op::kLess},
                                                                        {">", Op::kGreater}}};
  for (const auto& [text, op] : kOps) {
    if (cursor.take(text)) return op;
  }
  return std::nullopt;
}

std::optional<Specifier> parse_specifier(std::string_view text) {
  const std::string folded = lower(trim(text));
  Cursor cursor(folded);
  const auto op = read_op(cursor);
  if (!op) return std::nullopt;
  Specifier out;
  out.op = *op;
  auto version = trim(cursor.rest());
  if (*op == Op::kText) {
    out.text = version;
    const bool is_word = version.find_first_of(" \t\n\r\f\v;)") == version.npos;
    return is_word && !version.empty() ? std::optional(std::move(out)) : std::nullopt;
  }
  const bool is_equality = *op == Op::kEqual || *op == Op::kNotEqual;
  out.is_prefix = is_equality && version.ends_with(".*");
  if (out.is_prefix) version.remove_suffix(2);
  auto parsed = parse(version);
  if (!parsed || trim(version) != version) return std::nullopt;
  out.version = *std::move(parsed);
  const Version& v = out.version;
  if (out.is_prefix && (v.pre || v.post || v.dev || !v.local.empty())) return std::nullopt;
  if (!is_equality && !v.local.empty()) return std::nullopt;
  if (*op == Op::kCompatible && v.release.size() < 2) return std::nullopt;
  return out;
}

bool equals(const Specifier& spec, const Version& v) {
  if (spec.is_prefix) return has_prefix(v, spec.version);
  return compare(spec.version.local.empty() ? without_local(v) : v, spec.version) == 0;
}

// "<1.0" leaves out pre-releases of 1.0 itself, "<1.0.post2" those of that post-release.
bool is_less(const Version& spec, const Version& v) {
  if (compare(v, spec) >= 0) return false;
  if (is_prerelease(spec) || !is_prerelease(v) || !same_base(v, spec)) return true;
  return spec.post && (v.pre || v.post != spec.post);
}

// ">1.0" leaves out post-releases and local builds of 1.0 itself.
bool is_greater(const Version& spec, const Version& v) {
  if (compare(without_local(v), spec) <= 0) return false;
  const bool is_post_of_spec =
      v.post && !spec.post && !spec.dev && v.pre == spec.pre && same_base(v, spec);
  return !is_post_of_spec;
}

bool is_compatible(const Version& spec, const Version& v) {
  Version prefix = spec;
  prefix.release.pop_back();
  return compare(without_local(v), spec) >= 0 && has_prefix(v, prefix);
}

bool holds(const Specifier& spec, const Version& v) {
  switch (spec.op) {
    case Op::kCompatible:
      return is_compatible(spec.version, v);
    case Op::kEqual:
      return equals(spec, v);
    case Op::kNotEqual:
      return !equals(spec, v);
    case Op::kLessEqual:
      return compare(without_local(v), spec.version) <= 0;
    case Op::kGreaterEqual:
      return compare(without_local(v), spec.version) >= 0;
    case Op::kLess:
      return is_less(spec.version, v);
    case Op::kGreater:
      return is_greater(spec.version, v);
    case Op::kText:
      return false;
  }
  return false;
}

std::optional<std::vector<Specifier>> parse_all(std::string_view text) {
  std::vector<Specifier> out;
  for (const auto& part : split(text, ',')) {
    auto spec = parse_specifier(part);
    if (!spec) return std::nullopt;
    out.push_back(*std::move(spec));
  }
  return out;
}

}  // namespace

std::optional<Version> parse(std::string_view text) {
  const std::string folded = lower(trim(text));
  Cursor cursor(folded);
  Version out;
  if (!read_release(cursor, out)) return std::nullopt;
  out.pre = read_pre(cursor);
  out.post = read_post(cursor);
  out.dev = read_dev(cursor);
  if (!read_local(cursor, out) || !cursor.at_end()) return std::nullopt;
  return out;
}

std::strong_ordering compare(const Version& a, const Version& b) {
  if (const auto order = a.epoch <=> b.epoch; order != 0) return order;
  if (const auto order = compare_releases(a.release, b.release); order != 0) return order;
  if (const auto order = compare_pre(a, b); order != 0) return order;
  if (const auto order = compare_optional(a.post, b.post, true); order != 0) return order;
  if (const auto order = compare_optional(a.dev, b.dev, false); order != 0) return order;
  return compare_local(a.local, b.local);
}

bool is_specifiers(std::string_view text) {
  return parse_all(text).has_value();
}

bool matches(std::string_view specifiers, std::string_view version) {
  const auto all = parse_all(specifiers);
  if (!all) return false;
  const auto parsed = parse(version);
  const std::string folded = lower(trim(version));
  return std::all_of(all->begin(), all->end(), [&](const Specifier& spec) {
    if (spec.op == Op::kText) return spec.text == folded;
    return parsed && holds(spec, *parsed);
  });
}

}  // namespace glovebox::policy::internal::pep440
