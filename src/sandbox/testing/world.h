// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sandbox/manager.h"
#include "sandbox/testing/fake_agent.h"

namespace glovebox::sandbox::testing {

// Puts the template `base` into a data directory, with this image; empty: an empty file.
void add_template(const std::string& data_dir, const std::string& image);

// A data directory of its own, removed with everything in it.
class DataDirectory {
 public:
  DataDirectory();
  ~DataDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A daemon's inside on a fake runtime, with an agent in each sandbox. Everything runs on the caller's thread, in run().
class World {
 public:
  explicit World(Config config = {}, runtime::Tier tier = runtime::Tier::kContainer);
  ~World();

  void run(std::function<Awaitable<void>()> task);
  // The daemon dies as if by SIGKILL, and another one takes over (when the next run() begins).
  void restart();
  // The daemon is there, and the sandboxes of an earlier one are not taken over yet.
  void restart_without_recovery();

  Manager& manager() { return *manager_; }
  FakeRuntime& runtime() { return *runtime_; }
  FakeAgent* agent(const std::string& id);
  const Config& config() const { return config_; }
  Config& next_config() { return config_; }  // from the next restart on
  Executor executor() { return loop_->executor(); }

  Awaitable<Result<SandboxInfo>> create(CreateSpec spec = {});
  Awaitable<ExecutionPtr> exec(std::string id, std::string command);  // must start
  SandboxInfo info(const std::string& id);

  Caller caller{"tenant", "key", Role::kUser, {}, "req"};
  FakeAgent::Intercept intercept;  // for agents of sandboxes that start from now on
  network::Network* network = nullptr;  // from the next restart on

 private:
  void make();
  Awaitable<void> keep_agents();

  DataDirectory data_;
  Config config_;
  std::shared_ptr<FakeRuntime> runtime_;
  std::map<std::string, std::shared_ptr<FakeAgent>> agents_;
  std::set<std::pair<std::string, std::shared_ptr<FakeBox>>> running_agents_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<image::Templates> templates_;
  std::unique_ptr<Manager> manager_;
  std::unique_ptr<channel::testing::TestLoop> loop_;
  std::unique_ptr<BlockingPool> pool_;
  bool recover_next_ = true;
};

}  // namespace glovebox::sandbox::testing
