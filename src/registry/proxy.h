// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/async.h"
#include "http/server.h"
#include "registry/settings.h"

namespace glovebox::registry {

// All of the proxy but its process: answers requests for the sandboxes it knows. Loop thread only.
class Proxy {
 public:
  struct Parts {
    Executor executor;
    std::string cache_dir;
    std::string ca_bundle;
    std::function<void(boost::json::object)> on_event;  // an entry of the package log
  };
  // Opens the cache (and removes what an earlier process left half done) and starts the fetching thread.
  static Result<std::unique_ptr<Proxy>> create(Parts parts);
  virtual ~Proxy() = default;

  virtual Result<void> configure(const Settings& settings) = 0;
  // Sets or replaces; what the sandbox has downloaded so far stays counted.
  virtual void set_policy(const std::string& sandbox, policy::PackagePolicy policy) = 0;
  virtual void forget(const std::string& sandbox) = 0;
  virtual Awaitable<void> handle(http::Exchange& exchange) = 0;
};

}  // namespace glovebox::registry
