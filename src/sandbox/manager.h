// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "image/templates.h"
#include "network/network.h"
#include "sandbox/config.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "sandbox/volumes.h"
#include "sandbox/warmth.h"
#include "store/store.h"

namespace glovebox::sandbox {

struct ManagerParts {
  Executor executor;
  BlockingPool* pool = nullptr;
  store::Store* store = nullptr;
  image::Templates* templates = nullptr;
  network::Network* network = nullptr;  // null: sandboxes have loopback only
  std::vector<std::unique_ptr<runtime::Runtime>> runtimes;
  std::vector<SandboxService::RuntimeInfo> capabilities;  // what the probes found, strongest first
};

// The SandboxService of a daemon.
class Manager : public SandboxService {
 public:
  static std::unique_ptr<Manager> create(Config config, ManagerParts parts);

  // Snapshots, forks and what comes of them; lives as long as this.
  virtual Snapshots& snapshots() = 0;
  virtual Volumes& volumes() = 0;

  // Blocking, before the loop runs: reads the store and removes host objects that belong to nothing in it.
  virtual Result<void> load() = 0;
  // Before recover(): brings up what targets of the pool want in their sandboxes. Without one they are started as they are.
  virtual void set_warmer(Warmer warmer) = 0;
  // On the loop: takes over what lives, ends what does not. Calls are served meanwhile.
  virtual Awaitable<void> recover() = 0;
  // The daemon stops: watches end (kUnavailable), and their callers hear why.
  virtual void cut_watches() = 0;
  // Ends what the pool holds; it is not filled any more.
  virtual Awaitable<void> close_pool() = 0;
  // Ends every sandbox (all: also those that could live on). None is made any more.
  virtual Awaitable<void> end_all(std::string reason) = 0;
  virtual const std::vector<std::unique_ptr<runtime::Runtime>>& engines() const = 0;
  // What later probes found, in the same order.
  virtual void set_capabilities(std::vector<RuntimeInfo> capabilities) = 0;
  virtual const Config& config() const = 0;
};

}  // namespace glovebox::sandbox
