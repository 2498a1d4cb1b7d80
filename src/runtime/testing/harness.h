// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/runtime.h"

// What the runtime's tests and its benchmark share.
namespace glovebox::runtime::testing {

// A data directory of its own under TMPDIR, with the stand-in agent as agent; removed with
// everything in it.
class Host {
 public:
  explicit Host(Tier tier, const std::string& agent_path = "", MicrovmConfig::Engine engine = MicrovmConfig::Engine::kAuto);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Another view of the same directory, as a daemon that was started again would have it.
  explicit Host(Tier tier, const Host& other);

  Runtime& runtime() { return *runtime_; }
  const HostConfig& config() const { return config_; }
  const Rootfs& rootfs() const { return rootfs_; }
  StartSpec spec(const std::string& id) const;  // small limits; makes the directory

 private:
  HostConfig config_;
  Rootfs rootfs_;
  std::unique_ptr<Runtime> runtime_;
  bool owner_ = true;
};

// Why the tier cannot be tested here; empty when it can. Enters the private namespace on the first
// call of the process.
std::string why_not(Tier tier);

std::string to_text(const Record& record);
Record record_from_text(const std::string& text);

Result<void> shake_hands(const ChannelFds& channel,
                         std::chrono::milliseconds patience = std::chrono::seconds(60));
// One command for the stand-in agent and its answer; kSandboxEnded when none comes within
// `patience`.
Result<std::string> ask(const ChannelFds& channel, const std::string& command,
                        std::chrono::milliseconds patience = std::chrono::seconds(60));

// Sends PINGs as long as the pipe takes them, then reads a part of what has come back.
void make_traffic(const ChannelFds& channel);

// Everything on the host that a sandbox could leave behind.
struct HostObjects {
  int processes = 0;  // children of this process, zombies included
  int mounts = 0;
  int cgroups = 0;
  int loops = 0;
  int descriptors = 0;
  bool operator==(const HostObjects&) const = default;
};
HostObjects count_objects(const HostConfig& config);
// What there is more than `before`, as soon as it is nothing, or else after a minute: what dies is to be seen for a moment.
HostObjects left_over(const HostConfig& config, const HostObjects& before);
std::ostream& operator<<(std::ostream& out, const HostObjects& objects);

}  // namespace glovebox::runtime::testing
