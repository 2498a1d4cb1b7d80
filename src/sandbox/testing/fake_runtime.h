// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "channel/testing/peer.h"
#include "runtime/runtime.h"

namespace glovebox::sandbox::testing {

// A sandbox without a sandbox: its agent is whoever holds `peer`.
struct FakeBox {
  channel::testing::Peer peer;
  UniqueFd death_read, death_write;  // closing the second is the end of its process
  bool frozen = false;
};

// Engines that exist in memory only, and fail where the test says. Like a real one it outlives managers.
class FakeRuntime : public runtime::Runtime {
 public:
  explicit FakeRuntime(runtime::Tier tier) : tier_(tier) {}

  enum class Step { kNone, kPrepare, kStart, kDeathFd, kAdopt, kSnapshot };
  std::atomic<Step> fail_at{Step::kNone};
  std::atomic<int> destroy_failures{0};
  std::atomic<int> freeze_failures{0};
  std::atomic<uint64_t> oom_kills{0};
  std::atomic<bool> died_of_oom{false};
  std::atomic<bool> is_other_engine{false};
  std::atomic<int> snapshots{0}, restores{0};
  std::atomic<int> starts{0}, destroys{0}, freezes{0}, thaws{0}, most_at_once{0};

  // Called by what it is named for, in that one's thread: thaw, snapshot. Set while nothing runs.
  std::function<void(std::string_view)> at_work = [](std::string_view) {};

  void hold_starts();     // start() waits …
  void release_starts();  // … until here
  int waiting_starts() const;

  std::shared_ptr<FakeBox> box(const std::string& id) const;  // null when there is none
  std::vector<std::string> ids() const;
  void kill(const std::string& id);  // its process ends
  void leave_behind(const std::string& id);  // an object of a sandbox that nobody knows; sweep() removes it

  runtime::Tier tier() const override { return tier_; }
  runtime::Capability probe(const runtime::Rootfs&) override { return {true, "fake", "", "", {}}; }
  Result<void> prepare(const runtime::Rootfs&) override;
  void forget(const runtime::Rootfs&) override {}
  runtime::Record plan(const runtime::StartSpec& spec) override { return {spec.id, tier_, spec.directory, {{"planned", "1"}}}; }
  Result<runtime::Started> start(const runtime::StartSpec& spec, const runtime::Record& planned, Deadline deadline) override;
  Result<runtime::ChannelFds> adopt(const runtime::Record& record) override;
  Result<void> freeze(const runtime::Record& record) override;
  Result<void> thaw(const runtime::Record& record) override;
  runtime::Kept keeps() const override { return tier_ == runtime::Tier::kContainer ? runtime::Kept::kFiles : runtime::Kept::kMemoryAndFiles; }
  Result<runtime::SnapshotImage> snapshot(const runtime::Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) override;
  Result<void> check_needs(const std::map<std::string, std::string>& needs) override;
  Result<runtime::Usage> usage(const runtime::Record& record) override;
  Result<UniqueFd> death_fd(const runtime::Record& record) override;
  runtime::Death death(const runtime::Record& record) override;
  Result<void> destroy(const runtime::Record& record) override;
  std::vector<std::string> sweep(const std::vector<std::string>& known) override;
  std::vector<runtime::HostObject> host_objects() override;

 private:
  runtime::Tier tier_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int waiting_ = 0, at_once_ = 0;
  std::map<std::string, std::shared_ptr<FakeBox>> boxes_;
};

}  // namespace glovebox::sandbox::testing
