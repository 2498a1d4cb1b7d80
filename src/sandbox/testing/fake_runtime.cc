// SPDX-License-Identifier: Apache-2.0
#include "sandbox/testing/fake_runtime.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace glovebox::sandbox::testing {

void FakeRuntime::hold_starts() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeRuntime::release_starts() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

int FakeRuntime::waiting_starts() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

std::shared_ptr<FakeBox> FakeRuntime::box(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = boxes_.find(id);
  return found == boxes_.end() ? nullptr : found->second;
}

std::vector<std::string> FakeRuntime::ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [id, box] : boxes_) out.push_back(id);
  return out;
}

void FakeRuntime::kill(const std::string& id) {
  if (const auto found = box(id)) found->death_write.reset();
}

void FakeRuntime::leave_behind(const std::string& id) {
  const std::lock_guard lock(mutex_);
  boxes_[id] = std::make_shared<FakeBox>();
}

std::vector<runtime::HostObject> FakeRuntime::host_objects() {
  std::vector<runtime::HostObject> found;
  for (const std::string& id : ids()) found.push_back({id, "box " + id});
  return found;
}

Result<void> FakeRuntime::prepare(const runtime::Rootfs&) {
  if (fail_at == Step::kPrepare) return fail(Code::kIo, "prepare fails");
  return {};
}

Result<runtime::Started> FakeRuntime::start(const runtime::StartSpec& spec, const runtime::Record& planned, Deadline) {
  std::unique_lock lock(mutex_);
  ++starts;
  ++waiting_;
  most_at_once = std::max(most_at_once.load(), ++at_once_);
  changed_.wait(lock, [this] { return !held_; });
  --waiting_;
  --at_once_;
  if (fail_at == Step::kStart) return fail(Code::kStartFailed, "start fails");
  if (!spec.snapshot.empty()) ++restores;
  auto box = std::make_shared<FakeBox>();
  int ends[2];
  GB_ASSERT(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  box->death_read.reset(ends[0]);
  box->death_write.reset(ends[1]);
  auto [to, from] = box->peer.copy_daemon_ends();
  boxes_[spec.id] = std::move(box);
  return runtime::Started{planned, {std::move(to), std::move(from)}, {}};
}

Result<runtime::ChannelFds> FakeRuntime::adopt(const runtime::Record& record) {
  const auto found = box(record.id);
  if (!found || !found->death_write || fail_at == Step::kAdopt) return fail(Code::kSandboxEnded, "it is gone");
  auto [to, from] = found->peer.copy_daemon_ends();
  return runtime::ChannelFds{std::move(to), std::move(from)};
}

Result<void> FakeRuntime::freeze(const runtime::Record& record) {
  ++freezes;
  if (freeze_failures > 0) return --freeze_failures, fail(Code::kIo, "freeze fails");
  if (const auto found = box(record.id)) found->frozen = true;
  return {};
}

Result<void> FakeRuntime::thaw(const runtime::Record& record) {
  ++thaws;
  at_work("thaw");
  if (const auto found = box(record.id)) found->frozen = false;
  return {};
}

Result<runtime::SnapshotImage> FakeRuntime::snapshot(const runtime::Record& record, const std::string& directory, Afterwards, Deadline) {
  ++snapshots;
  at_work("snapshot");
  const auto found = box(record.id);
  if (!found || !found->death_write) return fail(Code::kSandboxEnded, "it is gone");
  if (fail_at == Step::kSnapshot) return fail(Code::kIo, "snapshot fails");
  std::ofstream(directory + "/state") << "of " << record.id;
  return runtime::SnapshotImage{keeps(), {{"state", 3 + record.id.size(), {}}}, {{"engine", "fake"}}, 32 << 20, 64 << 20, std::chrono::microseconds(7)};
}

Result<void> FakeRuntime::check_needs(const std::map<std::string, std::string>& needs) {
  if (!is_other_engine || needs.empty()) return {};
  return fail(Code::kSnapshotMismatch, "another engine");
}

Result<runtime::Usage> FakeRuntime::usage(const runtime::Record& record) {
  if (!box(record.id)) return fail(Code::kSandboxEnded, "it is gone");
  runtime::Usage usage;
  usage.oom_kills = oom_kills;
  return usage;
}

Result<UniqueFd> FakeRuntime::death_fd(const runtime::Record& record) {
  const auto found = box(record.id);
  if (!found || fail_at == Step::kDeathFd) return fail(Code::kSandboxEnded, "it is gone");
  return UniqueFd(::fcntl(found->death_read.get(), F_DUPFD_CLOEXEC, 3));
}

runtime::Death FakeRuntime::death(const runtime::Record&) {
  return {died_of_oom ? runtime::EndReason::kOom : runtime::EndReason::kCrashed, {}, "it died"};
}

Result<void> FakeRuntime::destroy(const runtime::Record& record) {
  ++destroys;
  if (destroy_failures > 0) return --destroy_failures, fail(Code::kIo, "destroy fails");
  const std::lock_guard lock(mutex_);
  const auto found = boxes_.find(record.id);
  if (found == boxes_.end()) return {};
  found->second->death_write.reset();  // an agent of it may be held for longer
  boxes_.erase(found);
  return {};
}

std::vector<std::string> FakeRuntime::sweep(const std::vector<std::string>& known) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> swept;
  std::erase_if(boxes_, [&](const auto& box) {
    if (std::find(known.begin(), known.end(), box.first) != known.end()) return false;
    swept.push_back(box.first);
    return true;
  });
  return swept;
}

}  // namespace glovebox::sandbox::testing
