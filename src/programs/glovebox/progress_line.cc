// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/progress_line.h"

#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "programs/glovebox/loop.h"
#include "programs/glovebox/table.h"
#include "programs/glovebox/terminal.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

constexpr auto kRedrawEvery = std::chrono::milliseconds(100);

int percent(const image::Progress& progress) {
  return static_cast<int>(100.0 * static_cast<double>(std::min(progress.done, progress.total)) /
                          static_cast<double>(progress.total));
}

// What `done` and `total` count differs by phase: packages while apt works on them, else bytes.
std::string amount(const image::Progress& progress, uint64_t n) {
  const bool packages = progress.phase == "unpack" || progress.phase == "configure" || progress.phase == "resolve";
  return packages ? std::to_string(n) : human_bytes(n);
}

// The first `columns` characters.
std::string cut(const std::string& text, size_t columns) {
  std::string out = text;
  while (display_width(out) > columns) out.pop_back();
  return out.substr(0, utf8_complete_prefix(out));
}

}  // namespace

std::string progress_text(const image::Progress& progress) {
  std::string out = printable(progress.phase);
  // The last message counts steps, of which there is one.
  if (progress.total > 1) {
    out += "  " + std::to_string(percent(progress)) + "%  " + amount(progress, progress.done) + " of " +
           amount(progress, progress.total);
  } else if (progress.done > 1) {
    out += "  " + amount(progress, progress.done);
  }
  if (progress.eta.count() > 0) out += "  about " + human_duration(progress.eta) + " left";
  if (!progress.message.empty()) out += "  " + printable(progress.message);
  return out;
}

ProgressLine::ProgressLine(int fd) : fd_(fd), is_terminal_(::isatty(fd) == 1) {}

void ProgressLine::show(const image::Progress& progress) {
  const bool is_new_phase = progress.phase != phase_;
  phase_ = progress.phase;
  if (is_terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_new_phase && now - shown_at_ < kRedrawEvery) return;
    shown_at_ = now;
    is_open_ = true;
    const auto columns = static_cast<size_t>(window_size(fd_).cols);
    (void)write_fully(fd_, "\r\033[K" + cut(progress_text(progress), columns - 1));
    return;
  }
  const int tenth = progress.total > 0 ? percent(progress) / 10 : -1;
  if (!is_new_phase && tenth == tenth_) return;
  tenth_ = tenth;
  (void)write_fully(fd_, progress_text(progress) + "\n");
}

void ProgressLine::finish() {
  if (is_open_) (void)write_fully(fd_, "\r\033[K");
  is_open_ = false;
}

}  // namespace glovebox::cli
