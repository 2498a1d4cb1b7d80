// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "programs/agent/json.h"
#include "programs/agent/users.h"

namespace glovebox::agent {

// Replaces /etc/<name> as a whole. Where it is a mount point (a bind mount cannot be replaced), writes into it. Best effort.
void write_etc(const char* name, std::string_view text);

// A guest with a kernel of its own may have slept, or is a copy and wakes up at the time of its picture; elsewhere the clock is the
// host's and this changes nothing.
inline constexpr int64_t kCopyToleranceNs = 10'000'000;
void set_clock(int64_t unix_time_ns, int64_t tolerance_ns);

// What the agent does to the sandbox's system when it learns who it is. Every step is best effort:
// an image may be read-only or lack rights, and still be useful. Nothing follows a link that the
// image has put in the way, and nothing is repeated by a later HELLO unless its value has changed:
// the user may have edited it.
class Setup {
 public:
  explicit Setup(Users& users) : users_(users) {}
  void apply(const json::object& hello, const std::string& default_user);

 private:
  void set_names(const std::string& hostname);
  void make_directories(const std::string& default_user);

  Users& users_;
  bool done_ = false, directories_made_ = false;
  std::string hostname_, sandbox_;
};

}  // namespace glovebox::agent
