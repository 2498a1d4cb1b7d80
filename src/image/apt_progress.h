// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "image/templates.h"

namespace glovebox::image {

// Turns the lines of `mmdebstrap --verbose` (its own, apt's and dpkg's) into Progress and keeps
// what explains a failure.
class AptProgress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit AptProgress(Time start) : start_(start) {}

  // True when current() changed enough to be worth reporting.
  bool feed(std::string_view line, Time now);
  const Progress& current() const { return now_; }
  // The lines that say why, newest last; empty when there were none.
  const std::string& complaint() const { return complaint_; }

 private:
  void enter(const std::string& phase, uint64_t total);
  void update_eta(Time now);
  uint64_t packages() const { return essential_ + rest_; }

  Time start_, last_report_{};
  Progress now_{.phase = "resolve"};
  std::string complaint_;
  uint64_t downloaded_ = 0, to_download_ = 0;
  uint64_t essential_ = 0,
           rest_ = 0;  // packages of mmdebstrap's two rounds; apt may say a number twice
  bool is_second_round_ = false;
  uint64_t unpacked_ = 0, configured_ = 0;
};

// "25.4 MB", "140 kB", "512 B" as apt prints sizes; 0 when it is none.
uint64_t parse_apt_size(std::string_view text);

}  // namespace glovebox::image
