// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/linux_runtime.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "runtime/internal/orphans.h"
#include "runtime/internal/snapshot_files.h"
#include "sys/files.h"
#include "sys/loop.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;

constexpr int kPipeBytes = 1 << 20;
constexpr auto kKillPatience = 10s, kRemovePatience = 2s;

bool is_known(const std::vector<std::string>& known, const std::string& id) {
  return std::find(known.begin(), known.end(), id) != known.end();
}

bool is_valid_id(const std::string& id) {
  return !id.empty() && id.size() <= 40 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

uint64_t number_field(const Record& record, const char* key) {
  auto it = record.fields.find(key);
  return it == record.fields.end() ? 0 : static_cast<uint64_t>(parse_int(it->second).value_or(0));
}

// Only in the boot, and by the process, that wrote them: to another daemon they are no children.
std::vector<pid_t> groups_of(const Record& record) {
  std::vector<pid_t> groups;
  auto text = record.fields.find("groups");
  auto owner = record.fields.find("groups_owner");
  if (text == record.fields.end() || owner == record.fields.end()) return groups;
  if (owner->second != sys::boot_id() + "." + std::to_string(::getpid())) return groups;
  for (const auto& word : split(text->second, ' ')) {
    if (auto group = parse_int(word); group && *group > 1)
      groups.push_back(static_cast<pid_t>(*group));
  }
  return groups;
}

// "…/sandboxes/<id>/disk.img" -> <id>
std::string owner_of(std::string backing_file) {
  backing_file.erase(std::min(backing_file.size(), backing_file.rfind('/')));
  return backing_file.substr(backing_file.rfind('/') + 1);
}

}  // namespace

void StepTimer::done(const char* step) {
  auto now = Clock::now();
  steps_.emplace_back(step, std::chrono::duration_cast<std::chrono::microseconds>(now - last_));
  last_ = now;
}

void StepTimer::done(const LaunchCommon& child) {
  auto begun = last_;
  std::string name = "clone";
  auto finish = [&](Clock::time_point now) {
    steps_.emplace_back("child: " + name,
                        std::chrono::duration_cast<std::chrono::microseconds>(now - begun));
    begun = now;
  };
  for (size_t i = 0; i < child.begun.size(); ++i) {  // the enumeration is in order of execution
    if (child.begun[i] == 0) continue;
    finish(Clock::time_point(std::chrono::nanoseconds(child.begun[i])));
    name = step_name(static_cast<LaunchStep>(i));
  }
  last_ = Clock::now();
  finish(last_);
}

LinuxRuntime::LinuxRuntime(const HostConfig& config)
    : config_(config),
      storage_(config),
      cgroups_(sys::CgroupTree::detect(config.cgroup_parent + "/" + config.instance)) {}

Result<const sys::CgroupTree*> LinuxRuntime::cgroups() const {
  if (!cgroups_) return fail(cgroups_.error());
  return &*cgroups_;
}

sys::ProcessId LinuxRuntime::process_of(const Record& record) {
  auto boot = record.fields.find("boot");
  if (boot == record.fields.end() || boot->second != sys::boot_id()) return {};
  return {static_cast<pid_t>(number_field(record, "pid")), number_field(record, "pid_start")};
}

void LinuxRuntime::remember_process(Record* record, const sys::ProcessId& process) {
  record->fields["boot"] = sys::boot_id();
  record->fields["pid"] = std::to_string(process.pid);
  record->fields["pid_start"] = std::to_string(process.start_time);
}

void LinuxRuntime::remember_groups(Record* record, const std::set<pid_t>& groups) {
  std::string text;
  for (pid_t group : groups) text += (text.empty() ? "" : " ") + std::to_string(group);
  record->fields["groups"] = text;
  record->fields["groups_owner"] = sys::boot_id() + "." + std::to_string(::getpid());
}

Result<void> LinuxRuntime::prepare(const Rootfs& rootfs) {
  GB_TRYV(storage_.make_layout());
  return storage_.prepare(rootfs);
}

void LinuxRuntime::forget(const Rootfs& rootfs) {
  auto done = storage_.forget(rootfs);
  if (!done)
    log::warn("runtime.forget_failed",
              {{"digest", rootfs.digest}, {"error", done.error().message}});
}

Record LinuxRuntime::plan(const StartSpec& spec) {
  return Record{spec.id, tier(), spec.directory, {}};
}

Result<void> LinuxRuntime::make_cgroup(Launch& launch, std::vector<UniqueFd>* entries) {
  GB_TRY(const auto* tree, cgroups());
  GB_TRYV(tree->create(launch.spec.id, cgroup_limits(launch.spec.limits)));
  GB_TRY(*entries, tree->entries(launch.spec.id));
  for (const auto& entry : *entries) launch.cgroup_fds.push_back(entry.get());
  launch.timer.done("cgroup");
  return {};
}

Result<UniqueFd> LinuxRuntime::private_disk(Launch& launch) const {
  std::string image = disk_image(launch.spec.directory);
  const bool from_copy = !launch.spec.snapshot.empty() && launch.spec.snapshot_kept == Kept::kFiles;
  if (from_copy) {
    GB_TRYV(sys::copy_sparse(disk_image(launch.spec.snapshot), image));
    GB_TRYV(grow_disk(image, launch.spec.limits.disk_bytes));
  } else {
    GB_TRYV(storage_.make_disk(image, launch.spec.limits.disk_bytes, launch.spec.limits.inodes));
  }
  launch.timer.done("disk copy");
  GB_TRY(auto disk, storage_.mount_disk(image));
  launch.timer.done("disk mount");
  return disk;
}

Result<Started> LinuxRuntime::try_start(Launch& launch) {
  GB_TRYV(storage_.make_layout());
  std::vector<UniqueFd> entries;
  GB_TRYV(make_cgroup(launch, &entries));
  GB_TRY(launch.to_agent, sys::make_lasting_pipe(sys::Direction::kToSandbox, kPipeBytes));
  GB_TRY(launch.from_agent, sys::make_lasting_pipe(sys::Direction::kFromSandbox, kPipeBytes));
  launch.record.fields["pipe_in"] = std::to_string(launch.to_agent.inode);
  launch.record.fields["pipe_out"] = std::to_string(launch.from_agent.inode);
  launch.timer.done("pipes");
  GB_TRYV(this->launch(launch));
  return Started{std::move(launch.record),
                 {std::move(launch.to_agent.outer), std::move(launch.from_agent.outer)},
                 launch.timer.take()};
}

Result<Started> LinuxRuntime::start(const StartSpec& spec, const Record& planned,
                                    Deadline deadline) {
  if (!is_valid_id(spec.id))
    return fail(Code::kInvalidArgument, "sandbox id: 1 to 40 of a-z, 0-9 and -");
  Launch launch{spec, planned, deadline, {}, {}, {}, {}};
  auto started = try_start(launch);
  if (started) return started;
  auto undone = destroy(launch.record);
  if (!undone)
    log::error("runtime.undo_failed", {{"sandbox", spec.id}, {"error", undone.error().message}});
  Error error = std::move(started).error();
  if (error.code != Code::kCapacity && error.code != Code::kTimeout &&
      error.code != Code::kRuntimeUnavailable && error.code != Code::kInvalidPath) {
    error.details["cause"] = std::string(info(error.code).name);
    error.code = Code::kStartFailed;
  }
  return fail(std::move(error));
}

Result<ChannelFds> LinuxRuntime::adopt(const Record& record) {
  auto process = process_of(record);
  auto ended = [&] {
    return fail(Code::kSandboxEnded, "the sandbox ended while no daemon was running");
  };
  if (!sys::is_alive(process)) return ended();
  auto to =
      sys::reopen_pipe(process.pid, number_field(record, "pipe_in"), sys::Direction::kToSandbox);
  auto from =
      sys::reopen_pipe(process.pid, number_field(record, "pipe_out"), sys::Direction::kFromSandbox);
  if (!sys::is_alive(process)) return ended();
  if (!to || !from) return fail(Code::kSandboxEnded, "the sandbox's agent closed its channel");
  return ChannelFds{std::move(*to), std::move(*from)};
}

Result<void> LinuxRuntime::freeze(const Record& record) {
  GB_TRY(const auto* tree, cgroups());
  return tree->freeze(record.id);
}

Result<void> LinuxRuntime::thaw(const Record& record) {
  GB_TRY(const auto* tree, cgroups());
  return tree->thaw(record.id);
}

Result<Usage> LinuxRuntime::usage(const Record& record) {
  GB_TRY(const auto* tree, cgroups());
  GB_TRY(auto group, tree->usage(record.id));
  Usage usage;
  usage.cpu_us = group.cpu_us;
  usage.throttled_us = group.throttled_us;
  usage.memory_bytes = group.memory_bytes;
  usage.memory_peak_bytes = group.memory_peak_bytes;
  usage.processes = group.processes;
  usage.oom_kills = group.oom_kills;
  if (sys::is_alive(process_of(record))) disk_usage(record, &usage);
  return usage;
}

Result<UniqueFd> LinuxRuntime::death_fd(const Record& record) {
  return sys::open_pidfd(process_of(record));
}

// SIGKILL from the kernel's memory limit and from a person look the same but for the group's
// counter of such kills.
namespace {

// For people, when the engine said nothing itself.
std::string describe(std::optional<int> status) {
  if (!status) return "its first process is gone";
  if (WIFSIGNALED(*status)) return "its first process died of signal " + std::to_string(WTERMSIG(*status));
  return "its first process exited with status " + std::to_string(WEXITSTATUS(*status));
}

}  // namespace

Death LinuxRuntime::death(const Record& record) {
  Death death;
  auto process = process_of(record);
  death.wait_status = process.pid > 0 ? sys::peek_status(process.pid) : std::nullopt;
  uint64_t oom_kills = 0;
  if (cgroups_) {
    auto group = cgroups_->usage(record.id);
    if (group) oom_kills = group->oom_kills;
  }
  death.message = engine_log(record);
  if (death.message.empty()) death.message = describe(death.wait_status);
  if (!death.wait_status) {
    death.reason = oom_kills > 0 ? EndReason::kOom : EndReason::kCrashed;
    return death;
  }
  int status = *death.wait_status;
  bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  bool engine_saw_kill = WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL;
  if (killed || engine_saw_kill) {
    death.reason = oom_kills > 0 ? EndReason::kOom : EndReason::kKilled;
  } else if (WIFSIGNALED(status) || (tier() == Tier::kGvisor && WIFEXITED(status) &&
                                     WEXITSTATUS(status) != 0 && oom_kills > 0)) {
    death.reason = oom_kills > 0 ? EndReason::kOom : EndReason::kCrashed;
  } else {
    death.reason = EndReason::kExited;
  }
  return death;
}

// Everybody is stopped before the list is taken, so that nobody can fork away from it. We are the
// subreaper: orphans of an engine become our children and are reaped here, by number, so that
// nobody else's wait in this process misses its child.
Result<void> LinuxRuntime::kill_all(const Record& record, const sys::CgroupTree& tree) const {
  std::vector<sys::ProcessId> members;
  auto groups = groups_of(record);
  if (sys::is_present(process_of(record))) members.push_back(process_of(record));
  auto end = Clock::now() + kKillPatience;
  for (auto pause = 100us;; pause = std::min(pause * 2, std::chrono::microseconds(10ms))) {
    (void)tree.freeze(record.id);
    for (pid_t pid : tree.processes(record.id)) {
      auto id = sys::identify(pid);
      if (id && std::find(members.begin(), members.end(), *id) == members.end())
        members.push_back(*id);
    }
    bool empty = tree.kill_once(record.id);
    sys::kill_process(process_of(record));  // in case somebody moved it to another cgroup
    sys::reap_ended(&members);
    bool reaped = reap_groups(groups);
    if (empty && members.empty() && reaped) return {};
    if (Clock::now() > end)
      return fail(Code::kTimeout, "processes of " + record.id + " survive SIGKILL");
    std::this_thread::sleep_for(pause);
  }
}

// A child whose daemon was killed between its birth and its entering the cgroup may enter it, in one
// version 1 hierarchy after the other, after everything in there was killed: then once more.
Result<void> LinuxRuntime::remove_cgroup(const Record& record, const sys::CgroupTree& tree) const {
  for (auto end = Clock::now() + kRemovePatience;;) {
    GB_TRYV(kill_all(record, tree));
    auto removed = tree.remove(record.id, 20ms);
    if (removed || Clock::now() > end) return removed;
  }
}

// The last process's mounts go a moment after it, in the kernel's background, and the loop device
// with them.
Result<void> LinuxRuntime::wait_for_loop(const Record& record) const {
  auto end = Clock::now() + 5s;
  for (auto pause = 200us;; pause = std::min(pause * 2, std::chrono::microseconds(20ms))) {
    auto loops = sys::loops_below(record.directory);
    if (loops.empty()) return {};
    if (Clock::now() > end) {
      (void)sys::release_loop(loops[0].device);
      return fail(Code::kTimeout,
                  loops[0].device + " is still attached to " + loops[0].backing_file);
    }
    std::this_thread::sleep_for(pause);
  }
}

Result<void> LinuxRuntime::destroy(const Record& record) {
  GB_TRY(const auto* tree, cgroups());
  GB_TRYV(remove_cgroup(record, *tree));
  GB_TRYV(remove_engine_state(record));
  GB_TRYV(wait_for_loop(record));
  if (!record.directory.empty()) GB_TRYV(sys::remove_tree(record.directory, true));
  if (auto slot = record.fields.find("slot"); slot != record.fields.end()) {
    storage_.free_slot(static_cast<uint32_t>(parse_int(slot->second).value_or(0)), record.id);
  }
  return {};
}

std::vector<std::string> LinuxRuntime::sweep_cgroups(const std::vector<std::string>& known) {
  std::vector<std::string> swept;
  if (!cgroups_) return swept;
  for (const auto& name : cgroups_->names()) {
    if (is_known(known, name)) continue;
    size_t processes = cgroups_->processes(name).size();
    Record stray{name, tier(), "", {}};
    if (auto removed = remove_cgroup(stray, *cgroups_); !removed)
      log::error("runtime.sweep_failed", {{"cgroup", name}, {"error", removed.error().message}});
    swept.push_back("cgroup " + name + " with " + std::to_string(processes) + " processes");
  }
  return swept;
}

std::vector<std::string> LinuxRuntime::sweep_loops(const std::vector<std::string>& known) const {
  std::vector<std::string> swept;
  for (const auto& loop : sys::loops_below(config_.data_dir + "/sandboxes")) {
    if (is_known(known, owner_of(loop.backing_file))) continue;
    (void)sys::release_loop(loop.device);
    swept.push_back("loop device " + loop.device + " of " + loop.backing_file);
  }
  return swept;
}

std::vector<std::string> LinuxRuntime::sweep_directories(
    const std::vector<std::string>& known) const {
  std::vector<std::string> swept;
  const std::string parent = config_.data_dir + "/sandboxes";
  for (const auto& name : sys::list_directory(parent)) {
    if (is_known(known, name)) continue;
    if (sys::remove_tree(parent + "/" + name)) swept.push_back("directory " + parent + "/" + name);
  }
  return swept;
}

std::vector<HostObject> LinuxRuntime::host_objects() {
  std::vector<HostObject> found = engine_objects();
  const std::string parent = config_.data_dir + "/sandboxes";
  if (cgroups_) {
    for (const auto& name : cgroups_->names()) found.push_back({name, "cgroup " + name});
  }
  for (const auto& loop : sys::loops_below(parent))
    found.push_back({owner_of(loop.backing_file),
                     "loop device " + loop.device + " of " + loop.backing_file});
  for (const auto& name : sys::list_directory(parent))
    found.push_back({name, "directory " + parent + "/" + name});
  for (auto& slot : storage_.slots()) found.push_back(std::move(slot));
  return found;
}

std::vector<std::string> LinuxRuntime::sweep(const std::vector<std::string>& known) {
  auto swept = sweep_cgroups(known);
  auto add = [&](std::vector<std::string> more) {
    swept.insert(swept.end(), more.begin(), more.end());
  };
  add(sweep_loops(known));
  add(sweep_engine_state(known));
  add(sweep_directories(known));
  add(storage_.free_unknown_slots(known));
  if (cgroups_) cgroups_->remove_parents();  // as far as they are empty; create() makes them again
  return swept;
}

}  // namespace glovebox::runtime
