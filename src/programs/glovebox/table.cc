// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/table.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/result.h"
#include "base/text.h"

namespace glovebox::cli {
namespace {

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

std::string escaped(unsigned byte) {
  char text[8];
  std::snprintf(text, sizeof text, "\\x%02x", byte);
  return text;
}

std::string pad(const std::string& text, size_t width) {
  const size_t taken = display_width(text);
  return taken >= width ? text : text + std::string(width - taken, ' ');
}

}  // namespace

std::string printable(std::string_view text) {
  const std::string utf8 = utf8_lossy(text);
  std::string out;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    const bool is_c1 =
        byte == 0xc2 && i + 1 < utf8.size() && static_cast<unsigned char>(utf8[i + 1]) < 0xa0;
    if (is_c1) {
      out += escaped(static_cast<unsigned char>(utf8[++i]));
    } else if (byte < 0x20 || byte == 0x7f) {
      out += escaped(byte);
    } else {
      out += utf8[i];
    }
  }
  return out;
}

size_t display_width(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return !is_continuation(c); }));
}

void Table::add(std::vector<std::string> cells) {
  GB_ASSERT(cells.size() == header_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::render(bool bold_header) const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < header_.size(); ++column) {
    size_t width = display_width(header_[column]);
    for (const auto& row : rows_) width = std::max(width, display_width(row[column]));
    widths.push_back(width);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t column = 0; column < cells.size(); ++column)
      text += pad(cells[column], widths[column]) + "  ";
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::string out = coloured(line(header_), Colour::kBold, bold_header) + "\n";
  for (const auto& row : rows_) out += line(row) + "\n";
  return out;
}

std::string render_fields(const std::vector<std::pair<std::string, std::string>>& fields,
                          bool bold_names) {
  size_t width = 0;
  for (const auto& [name, value] : fields) width = std::max(width, display_width(name));
  std::string out;
  for (const auto& [name, value] : fields) {
    out += coloured(pad(name, width), Colour::kBold, bold_names) + "  " + printable(value) + "\n";
  }
  return out;
}

std::string coloured(std::string_view text, Colour colour, bool enabled) {
  static constexpr const char* kCodes[] = {"", "\033[31m", "\033[32m", "\033[33m", "\033[1m"};
  if (!enabled || colour == Colour::kNone || text.empty()) return std::string(text);
  return kCodes[static_cast<size_t>(colour)] + std::string(text) + "\033[0m";
}

bool colours_on(int fd) {
  const char* off = std::getenv("NO_COLOR");
  return (off == nullptr || *off == '\0') && ::isatty(fd) == 1;
}

}  // namespace glovebox::cli
