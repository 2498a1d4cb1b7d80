// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "image/templates.h"

namespace glovebox::cli {

// "download   61%  73.2 MiB of 120.0 MiB   about 12.0s left   libc6": the line without control
// characters.
std::string progress_text(const image::Progress& progress);

// Shows the progress of a long piece of work: one line that changes on a terminal; else a line for
// each phase and each tenth of it.
class ProgressLine {
 public:
  explicit ProgressLine(int fd);
  void show(const image::Progress& progress);
  void finish();  // leaves the terminal at the start of an empty line

 private:
  const int fd_;
  const bool is_terminal_;
  std::string phase_;
  int tenth_ = -1;
  bool is_open_ = false;
  std::chrono::steady_clock::time_point shown_at_{};
};

}  // namespace glovebox::cli
