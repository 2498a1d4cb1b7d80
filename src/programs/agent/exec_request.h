// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "programs/agent/json.h"
#include "programs/agent/users.h"

namespace glovebox::agent {

// What HELLO says about every execution.
struct ExecDefaults {
  std::map<std::string, std::string> env;
  std::string default_user = "root";
  uint64_t open_files = 0;  // 0: as the agent was started with
  uint64_t processes = 0;   // 0: leave
  rlimit64 own_open_files = {};
};

struct PtySize {
  uint16_t columns = 80;
  uint16_t rows = 24;
};

// EXEC, understood: everything the launch needs.
struct ExecRequest {
  std::string id;
  std::vector<std::string> argv;
  std::vector<std::string> env;         // NAME=value
  std::vector<std::string> candidates;  // paths of the program, to be tried in order
  std::string directory;
  bool directory_is_default = false;
  User user;
  bool wants_stdin = false;
  std::optional<PtySize> pty;
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds kill_grace{0};
  rlimit64 open_files = {};
  std::optional<rlimit64> processes;
};

Result<ExecRequest> parse_exec(const json::object& object, const ExecDefaults& defaults,
                               Users& users);
// An object of name → text. Names: not empty, no "=" and no NUL.
Result<std::map<std::string, std::string>> parse_env(const json::object& object,
                                                     std::string_view field);

}  // namespace glovebox::agent
