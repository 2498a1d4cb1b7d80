// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "sandbox/service.h"

// Watches that clients poll: made by one call, asked by others, ended by one or when nobody has
// asked for an hour. What each keeps is bounded by its channel's window; more waits in the sandbox.
// Loop thread only.
namespace glovebox::api {

class Watchers {
 public:
  explicit Watchers(std::string_view not_found) : not_found_(not_found) {}

  // The id of a new watcher. As SandboxService::watch_files().
  Async<std::string> create(sandbox::SandboxService& service, const sandbox::Caller& caller,
                            const std::string& sandbox, const std::string& user,
                            const std::string& path, bool recursive);
  struct Events {
    std::string path;  // that is watched
    std::vector<sandbox::FileEvent> events;
    bool overflowed = false;  // events are missing
  };
  // What has happened since the last call. kNotFound: no such watcher of this sandbox.
  // kFileNotFound: the directory is gone.
  Async<Events> take(const std::string& sandbox, const std::string& id);
  Result<void> remove(const std::string& sandbox, const std::string& id);

 private:
  struct Watcher {
    std::string sandbox, path;
    std::unique_ptr<sandbox::FileWatch> watch;
    Clock::time_point asked_at;
  };
  Result<std::shared_ptr<Watcher>> find(const std::string& sandbox, const std::string& id) const;
  void prune(const sandbox::SandboxService& service);

  std::string not_found_;  // the message
  std::map<std::string, std::shared_ptr<Watcher>> watchers_;
};

}  // namespace glovebox::api
