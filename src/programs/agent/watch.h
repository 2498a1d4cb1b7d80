// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "programs/agent/request.h"

struct inotify_event;

namespace glovebox::agent {

// One `watch` request, on a thread of its own: tells what changes in a directory, as lines of JSON,
// until the daemon gives it up or the directory is gone. Nothing is queued here beyond one batch:
// while the daemon does not take lines the kernel queues events, and says when it had to drop some.
class Watch {
 public:
  Watch(Request& request, std::string root, bool recursive)
      : request_(request), root_(std::move(root)), recursive_(recursive) {}

  Result<void> start();
  Result<void> run();

 private:
  Result<bool> add(const std::string& directory);
  Result<void> add_tree(const std::string& top, bool announce);
  Result<void> add_below(const std::string& directory, bool announce,
                         std::vector<std::string>& waiting);
  void forget(const std::string& top);
  Result<void> wait();
  Result<void> read_events();
  Result<void> take(const inotify_event& event);
  Result<void> take_self(const inotify_event& event, int watch);
  Result<void> take_own(const inotify_event& event, std::string_view name);
  Result<void> on_directory(const inotify_event& event, const std::string& path);
  bool is_moved_here(const inotify_event& event, const std::string& path);
  void forget_moved(const std::vector<uint32_t>& cookies);
  void forget_predecessor(const std::string& path, uint32_t cookie);
  bool is_on_the_move(const std::string& directory) const;
  Result<void> take_held();
  Result<void> on_overflow();
  Result<void> tell(std::string_view type, const std::string& path);
  Result<void> flush();

  Request& request_;
  const std::string root_;
  const bool recursive_;
  UniqueFd inotify_, cancelled_;
  std::unordered_map<int, std::string> directories_;  // watch → path below the root; empty: itself
  // By the cookie of their rename: directories that have left their place, and may be told of at another one. Their watches go on,
  // so that nothing in them is missed meanwhile.
  std::unordered_map<uint32_t, std::string> moved_;
  std::vector<std::string> held_;  // events in those
  int root_watch_ = -1;
  bool is_over_ = false;
  // A file that this agent writes appears by a rename from a temporary name, which is told as what
  // it means.
  uint32_t own_rename_ = 0;  // its cookie
  bool own_replaces_ = false;
  std::string lines_;
};

}  // namespace glovebox::agent
