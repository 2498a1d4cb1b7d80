// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/report.h"

#include <unistd.h>

#include <string>

#include "base/text.h"
#include "http/json.h"
#include "http/message.h"
#include "programs/glovebox/loop.h"
#include "programs/glovebox/table.h"

namespace glovebox::cli {
namespace {

// Every line of the text, made printable on its own: a daemon's log tail keeps its shape.
std::string printable_lines(std::string_view text) {
  std::string out;
  for (const std::string& line : split(text, '\n'))
    out += (out.empty() ? "" : "\n  ") + printable(line);
  return out;
}

void write_or_lose(int fd, std::string_view text) {
  if (!write_fully(fd, text)) return;  // nobody is left to tell
}

}  // namespace

std::string render_error(const Error& error, bool colours) {
  std::string out = coloured("glovebox: error:", Colour::kRed, colours) + " " +
                    printable_lines(error.message) + " (" + std::string(info(error.code).name) +
                    ")\n";
  out += "  " + coloured("hint:", Colour::kBold, colours) + " " +
         std::string(info(error.code).advice) + "\n";
  const auto request = error.details.find("request_id");
  if (request != error.details.end()) out += "  request: " + printable(request->second) + "\n";
  return out;
}

void print_error(const Error& error, bool as_json) {
  write_or_lose(STDERR_FILENO, as_json ? http::error_body(error) + "\n"
                                       : render_error(error, colours_on(STDERR_FILENO)));
}

void print_note(std::string_view text) {
  write_or_lose(STDERR_FILENO, "glovebox: " + printable(text) + "\n");
}

void print(std::string_view text) {
  write_or_lose(STDOUT_FILENO, text);
}

void print_json(const boost::json::value& value) {
  print(json::to_text(value) + "\n");
}

}  // namespace glovebox::cli
