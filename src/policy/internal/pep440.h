// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// PEP 440: versions of Python packages, their order, and specifiers.
namespace glovebox::policy::internal::pep440 {

// Digits without leading zeros, "" for 0: release numbers may be dates and longer than 64 bits.
struct Number {
  std::string digits;
  friend bool operator==(const Number&, const Number&) = default;
  friend std::strong_ordering operator<=>(const Number& a, const Number& b) {
    if (a.digits.size() != b.digits.size()) return a.digits.size() <=> b.digits.size();
    return a.digits <=> b.digits;
  }
};

struct LocalPart {
  bool is_number = false;
  Number number;
  std::string text;
  friend bool operator==(const LocalPart&, const LocalPart&) = default;
};

struct Version {
  Number epoch;
  std::vector<Number> release;  // as written, zeros at the end included
  struct Pre {
    char kind = 'a';  // 'a', 'b', 'r'
    Number number;
    friend bool operator==(const Pre&, const Pre&) = default;
  };
  std::optional<Pre> pre;
  std::optional<Number> post, dev;
  std::vector<LocalPart> local;
};

std::optional<Version> parse(std::string_view text);
std::strong_ordering compare(const Version& a, const Version& b);

bool is_specifiers(std::string_view text);
// Every comma-separated specifier holds; pre-releases count as any other version. False when either
// text cannot be read.
bool matches(std::string_view specifiers, std::string_view version);

}  // namespace glovebox::policy::internal::pep440
