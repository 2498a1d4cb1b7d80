// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

// Text for people. Strings that come from a sandbox or a caller never reach a terminal with control
// characters in them.
namespace glovebox::cli {

// The text on one line: control characters (C0, C1, DEL) become \xNN, bytes that are not UTF-8
// U+FFFD.
std::string printable(std::string_view text);

// Columns of a terminal that the text takes; one per character.
size_t display_width(std::string_view utf8);

class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  // As many cells as the header has; they are made printable.
  void add(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Columns separated by two blanks, no trailing blanks. `bold_header` writes terminal codes.
  std::string render(bool bold_header) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// "NAME   value" lines with the names aligned.
std::string render_fields(const std::vector<std::pair<std::string, std::string>>& fields,
                          bool bold_names);

enum class Colour { kNone, kRed, kGreen, kYellow, kBold };
std::string coloured(std::string_view text, Colour colour, bool enabled);
// True when `fd` is a terminal and NO_COLOR is not set (https://no-color.org: set and not empty).
bool colours_on(int fd);

}  // namespace glovebox::cli
