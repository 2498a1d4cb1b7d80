// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/async.h"

namespace glovebox::bench {

using Samples = std::vector<double>;

inline double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// The smallest sample that `share` of all samples do not exceed (nearest rank). `samples` is not
// empty.
double percentile(Samples samples, double share);

// One line of the table. The peer did the same work in the same run; `peer` is its command in
// short.
struct Row {
  std::string group;  // "host", or a tier's name
  std::string what;
  std::string unit;  // "ms": less is better; "MB/s", "1/s": more is better
  Samples ours;
  std::string peer;  // empty: nothing to compare with
  Samples theirs;
  std::string why_no_peer;  // set when the peer was not measured
  std::string target;       // what we aim for, as text; nothing is asserted
};

// Writes the row to standard output as one line of JSON; bench/run makes the table.
void print(const Row& row);

// Progress for people, to standard error.
void say(const std::string& text);

}  // namespace glovebox::bench
