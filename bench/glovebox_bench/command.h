// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace glovebox::bench {

using Words = std::vector<std::string>;

// Starts and waits for programs the cheapest way there is (posix_spawn, vfork inside). Standard
// input and output are /dev/null unless given. Standard error goes to a file: a detached engine
// keeps it open, so a pipe would never end.
class Commands {
 public:
  explicit Commands(std::string log_path) : log_path_(std::move(log_path)) {}

  Result<pid_t> start(const Words& argv, int stdin_fd = -1, int stdout_fd = -1) const;
  // kInternal unless it exits with 0; the message has the end of the log.
  Result<void> finish(pid_t pid, const Words& argv) const;
  Result<void> run(const Words& argv, int stdin_fd = -1) const;
  // The same, and reaps every other child that ends meanwhile: an engine that removes a sandbox
  // waits until the processes are gone, and as child subreaper we are the parent of those. Not
  // while other threads run commands.
  Result<void> run_and_reap(const Words& argv) const;

 private:
  Result<void> check(int status, const Words& argv) const;
  std::string log_path_;
};

// The first executable of that name in PATH, or nothing.
std::string find_program(const std::string& name);

}  // namespace glovebox::bench
