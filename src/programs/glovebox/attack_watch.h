// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// The host's side of `doctor --attack`: what is laid out for attackers to find, and what may not
// have changed afterwards.
namespace glovebox::cli {

// What is observed. The defaults are this host's; tests put throw-away files in their place.
struct WatchPlan {
  std::vector<std::string>
      programs;  // files whose content must stay: this program, the agent, engines
  std::vector<std::string> settings;  // of the kernel, and other files whose text must stay
  std::string mount_table = "/proc/self/mountinfo";
  std::string canary_parent;  // where the canary's directory is made; empty: TMPDIR or /tmp
};
WatchPlan plan_for_host(const std::string& data_dir);

struct Finding {
  std::string what;  // the check's name
  bool is_unharmed = true;
  std::string evidence;
};

class HostWatch {
 public:
  static Result<std::unique_ptr<HostWatch>> start(WatchPlan plan);
  ~HostWatch();
  HostWatch(const HostWatch&) = delete;
  HostWatch& operator=(const HostWatch&) = delete;

  // For the attacker's standard input: name=value lines (src/programs/attack/attack.h).
  std::string facts() const;
  const std::string& canary_path() const { return canary_path_; }
  const std::string& canary_directory() const { return directory_; }
  const std::string& secret() const { return secret_; }
  pid_t canary_process() const { return process_; }

  // One finding for each kind of thing watched. May be called again: everything is compared with
  // the start.
  std::vector<Finding> look();

 private:
  explicit HostWatch(WatchPlan plan) : plan_(std::move(plan)) {}
  Result<void> plant();
  Result<void> listen();
  Result<void> start_process();
  Finding look_at_canary() const;
  Finding look_at_process() const;
  Finding look_at_listeners();
  Finding look_at_files(const std::string& what,
                        const std::map<std::string, std::string>& before) const;
  Finding look_at_mounts() const;
  Finding look_at_name() const;

  WatchPlan plan_;
  std::string directory_, canary_path_, secret_, marker_, host_name_;
  std::map<std::string, std::string> programs_, settings_;
  std::vector<UniqueFd> listeners_;
  std::vector<std::string> addresses_, socket_names_;
  std::vector<std::string> reached_;
  pid_t process_ = -1;
};

}  // namespace glovebox::cli
