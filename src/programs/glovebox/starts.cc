// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/starts.h"

#include <cstdio>
#include <optional>

#include "base/text.h"
#include "sys/files.h"

namespace glovebox {
namespace {

// "<after_stop> <after_death> running|stopped\n"
struct Line {
  Restarts restarts;
  bool is_running = false;
};

std::string path_in(const std::string& data_dir) { return data_dir + "/starts"; }

std::optional<Line> read_line(const std::string& data_dir) {
  const auto text = sys::read_file(path_in(data_dir), 256);
  if (!text) return std::nullopt;
  const auto words = split(text->substr(0, text->find('\n')), ' ');
  if (words.size() != 3 || (words[2] != "running" && words[2] != "stopped")) return std::nullopt;
  const auto stops = parse_int(words[0]), deaths = parse_int(words[1]);
  if (!stops || !deaths || *stops < 0 || *deaths < 0) return std::nullopt;
  return Line{{static_cast<uint64_t>(*stops), static_cast<uint64_t>(*deaths)}, words[2] == "running"};
}

// Replaced as a whole, so that a death in the middle leaves the old one.
Result<void> write_line(const std::string& data_dir, const Line& line) {
  const std::string path = path_in(data_dir), aside = path + ".new";
  GB_TRYV(sys::put_file(aside, std::to_string(line.restarts.after_stop) + " " + std::to_string(line.restarts.after_death) +
                                   (line.is_running ? " running\n" : " stopped\n"), 0600));
  if (std::rename(aside.c_str(), path.c_str()) != 0) return fail_errno(path);
  return {};
}

}  // namespace

Result<Restarts> note_start(const std::string& data_dir) {
  Line line;
  if (const auto before = read_line(data_dir)) {
    line = *before;
    ++(before->is_running ? line.restarts.after_death : line.restarts.after_stop);
  }
  line.is_running = true;
  GB_TRYV(write_line(data_dir, line));
  return line.restarts;
}

Result<void> note_stop(const std::string& data_dir) {
  auto line = read_line(data_dir).value_or(Line());
  line.is_running = false;
  return write_line(data_dir, line);
}

}  // namespace glovebox
