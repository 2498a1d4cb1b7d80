// SPDX-License-Identifier: Apache-2.0
#include "image/apt_progress.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace glovebox::image {
namespace {

constexpr std::string_view kRest = "I: installing remaining packages";
constexpr size_t kMaxComplaint = 4000;
constexpr double kAfterPackagesSeconds = 8;  // cleaning and packing, next to what the packages take
constexpr auto kReportEvery = std::chrono::milliseconds(200);

bool starts(std::string_view line, std::string_view with) {
  return line.substr(0, with.size()) == with;
}

// The number before `word` in "0 upgraded, 59 newly installed, …".
uint64_t number_before(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string_view::npos || at == 0) return 0;
  const size_t from = line.rfind(' ', at - 2);
  const auto n = parse_int(line.substr(from == std::string_view::npos ? 0 : from + 1,
                                       at - 1 - (from == std::string_view::npos ? 0 : from + 1)));
  return n && *n > 0 ? static_cast<uint64_t>(*n) : 0;
}

}  // namespace

uint64_t parse_apt_size(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  while (*end == ' ') ++end;
  const double unit = *end == 'k'   ? 1e3
                      : *end == 'M' ? 1e6
                      : *end == 'G' ? 1e9
                      : *end == 'B' ? 1
                                    : 0;
  return number > 0 && number < 1e12 ? static_cast<uint64_t>(number * unit) : 0;
}

void AptProgress::enter(const std::string& phase, uint64_t total) {
  now_.phase = phase;
  now_.done = 0;
  now_.total = total;
}

void AptProgress::update_eta(Time now) {
  const double steps = static_cast<double>(unpacked_ + configured_),
               all = 2.0 * static_cast<double>(packages());
  if (steps < 20 || all <= steps || rest_ == 0) return;  // the first round does not know the second
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left = elapsed / steps * (all - steps) + kAfterPackagesSeconds;
  now_.eta = std::chrono::milliseconds(static_cast<int64_t>(left * 1000));
}

bool AptProgress::feed(std::string_view line, Time now) {
  const std::string phase = now_.phase;
  if (starts(line, "E: ") || starts(line, "Err:") || starts(line, "dpkg: error") ||
      starts(line, "W: ")) {
    if (complaint_.size() + line.size() < kMaxComplaint)
      complaint_ += (complaint_.empty() ? "" : "\n") + utf8_lossy(line);
    return false;
  }
  if (line.find(" newly installed, ") != std::string_view::npos) {
    (is_second_round_ ? rest_ : essential_) = number_before(line, "newly installed");
  } else if (starts(line, "Need to get ")) {
    downloaded_ = 0;
    to_download_ = parse_apt_size(line.substr(12, line.find('/', 12) - 12));
    enter("download", to_download_);
  } else if (starts(line, "Get:") && now_.phase == "download") {
    const size_t bracket = line.rfind('[');
    if (bracket != std::string_view::npos) downloaded_ += parse_apt_size(line.substr(bracket + 1));
    now_.done = std::min(downloaded_, to_download_);
    now_.message = human_bytes(downloaded_) + " of " + human_bytes(to_download_);
  } else if (starts(line, "Unpacking ")) {
    ++unpacked_;
    if (now_.phase != "unpack") enter("unpack", packages());
    now_.done = std::min(unpacked_, packages());
    now_.total = packages();
    now_.message = utf8_lossy(line.substr(10, line.find(' ', 10) - 10));
  } else if (starts(line, "Setting up ")) {
    ++configured_;
    if (now_.phase != "configure") enter("configure", packages());
    now_.done = std::min(configured_, packages());
    now_.total = packages();
    now_.message = utf8_lossy(line.substr(11, line.find(' ', 11) - 11));
  } else if (starts(line, kRest)) {
    is_second_round_ = true;
    enter("resolve", 0);
  } else {
    return false;
  }
  update_eta(now);
  const bool is_due = phase != now_.phase || now - last_report_ >= kReportEvery;
  if (is_due) last_report_ = now;
  return is_due;
}

}  // namespace glovebox::image
