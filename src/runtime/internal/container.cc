// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/text.h"
#include "runtime/internal/launch.h"
#include "runtime/internal/linux_runtime.h"
#include "runtime/internal/snapshot_files.h"
#include "runtime/internal/volumes.h"
#include "sys/files.h"
#include "sys/mounts.h"
#include "sys/seccomp.h"
#include "sys/userns.h"

namespace glovebox::runtime {
namespace {

constexpr uint32_t kFirstId = 0x10000000;
constexpr uint32_t kIdsPerSandbox = 65536;
constexpr uint32_t kTtyGroup = 5;

// Strings that the plan points to.
struct Texts {
  std::string hostname, ping, devpts, shm, cpus, memory, cpu_max, boot_id;
};

Texts make_texts(const StartSpec& spec, uint32_t base) {
  auto cpus = static_cast<int64_t>(std::ceil(spec.limits.cpus));
  Texts t;
  t.hostname = spec.hostname.empty() ? spec.id : spec.hostname;
  t.ping = std::to_string(base) + " " + std::to_string(base + kIdsPerSandbox - 1);
  t.devpts = "newinstance,ptmxmode=0666,mode=0620,max=256,gid=" + std::to_string(base + kTtyGroup);
  t.shm = "mode=1777,size=" + std::to_string(spec.limits.memory_bytes / 2) + ",nr_inodes=65536";
  t.cpus = (cpus > 1 ? "0-" + std::to_string(cpus - 1) : "0") + "\n";
  t.memory = std::to_string(spec.limits.memory_bytes) + "\n";
  t.cpu_max = std::to_string(std::llround(spec.limits.cpus * 100000)) + " 100000\n";
  t.boot_id = random_uuid() + "\n";
  return t;
}

void point_to(const Texts& texts, ContainerPlan* plan) {
  plan->hostname = texts.hostname.c_str();
  plan->ping_group_range = texts.ping.c_str();
  plan->devpts_options = texts.devpts.c_str();
  plan->shm_options = texts.shm.c_str();
  plan->boot_id = texts.boot_id.c_str();
  plan->sys_files = {{{"/sys/devices/system/cpu/online", texts.cpus.c_str()},
                      {"/sys/devices/system/cpu/possible", texts.cpus.c_str()},
                      {"/sys/fs/cgroup/memory.max", texts.memory.c_str()},
                      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", texts.memory.c_str()},
                      {"/sys/fs/cgroup/cpu.max", texts.cpu_max.c_str()}}};
}

sock_fprog program(const std::vector<sock_filter>& filter) {
  return {static_cast<unsigned short>(filter.size()), const_cast<sock_filter*>(filter.data())};
}

class ContainerRuntime final : public LinuxRuntime {
 public:
  using LinuxRuntime::LinuxRuntime;
  Tier tier() const override { return Tier::kContainer; }
  Result<SnapshotImage> snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) override;
  Record plan(const StartSpec& spec) override;

 protected:
  sys::CgroupLimits cgroup_limits(const Limits& limits) const override;
  Result<void> launch(Launch& launch) override;
  void disk_usage(const Record& record, Usage* usage) const override;
  Result<void> remove_engine_state(const Record&) const override { return {}; }
  std::vector<std::string> sweep_engine_state(const std::vector<std::string>&) const override {
    return {};
  }
  std::vector<HostObject> engine_objects() const override { return {}; }
  std::string engine_log(const Record&) const override { return {}; }
  Result<std::string> engine_version() const override;
  std::string remedy() const override;

 private:
  Result<int> agent();
  Result<void> spawn(Launch& launch, ContainerPlan* plan) const;

  std::mutex agent_mutex_;
  UniqueFd agent_;
};

Record ContainerRuntime::plan(const StartSpec& spec) {
  Record record = LinuxRuntime::plan(spec);
  if (!storage().make_layout()) return record;  // start() reports it
  if (auto slot = storage().claim_slot(spec.id)) record.fields["slot"] = std::to_string(*slot);
  return record;
}

// One more for the agent.
sys::CgroupLimits ContainerRuntime::cgroup_limits(const Limits& limits) const {
  return {limits.cpus, limits.memory_bytes, limits.processes + 1, false};
}

// One copy for all sandboxes: it is sealed, so none of them can change it.
Result<int> ContainerRuntime::agent() {
  std::lock_guard lock(agent_mutex_);
  if (!agent_) {
    GB_TRY(agent_, sys::sealed_copy(config().agent_path, "glovebox-agent"));
  }
  return agent_.get();
}

Result<void> ContainerRuntime::spawn(Launch& launch, ContainerPlan* plan) const {
  const int namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                         (plan->netns_fd < 0 ? CLONE_NEWNET : 0);
  GB_TRY(auto child, sys::spawn_sharing_memory(namespaces, container_child, plan));
  if (plan->error != 0) {
    ::waitpid(child.pid, nullptr, 0);
    if (plan->step == LaunchStep::kVolumes) return volume_error(plan->error, launch.spec);
    return fail_errno(std::string("container: ") + step_name(plan->step), plan->error);
  }
  auto process = sys::identify(child.pid);
  if (!process) return fail(Code::kStartFailed, "the container's process vanished");
  remember_process(&launch.record, *process);
  launch.timer.done(*plan);
  return {};
}

Result<void> ContainerRuntime::launch(Launch& launch) {
  auto slot = launch.record.fields.find("slot");
  if (slot == launch.record.fields.end()) return fail(Code::kCapacity, "no id range is free");
  ContainerPlan plan;
  plan.base_id =
      kFirstId + static_cast<uint32_t>(parse_int(slot->second).value_or(0)) * kIdsPerSandbox;
  GB_TRY(auto user_namespace, sys::make_user_namespace(plan.base_id, kIdsPerSandbox));
  launch.timer.done("user namespace");
  GB_TRY(auto disk, private_disk(launch));
  GB_TRYV(sys::map_owners(disk, user_namespace));
  GB_TRY(auto rootfs, storage().rootfs_copy(launch.spec.rootfs));
  GB_TRYV(sys::map_owners(rootfs, user_namespace));
  launch.timer.done("rootfs");
  GB_TRY(const auto volumes, VolumeMounts::make(launch.spec));
  GB_TRYV(volumes.map_owners(user_namespace));
  const auto& filter = sys::sandbox_filter();
  if (!filter) return fail(filter.error());
  GB_TRY(plan.agent_fd, agent());
  Texts texts = make_texts(launch.spec, plan.base_id);
  point_to(texts, &plan);
  plan.cgroup_fds = launch.cgroup_fds.data();
  plan.cgroup_count = launch.cgroup_fds.size();
  plan.stage = storage().stage().c_str();
  plan.rootfs_fd = rootfs.get();
  volumes.point_to(&plan);
  plan.disk_fd = disk.get();
  plan.user_namespace_fd = user_namespace.get();
  plan.stdin_fd = launch.to_agent.inner.get();
  plan.stdout_fd = launch.from_agent.inner.get();
  plan.netns_fd = launch.spec.netns_fd;
  plan.open_files = launch.spec.limits.open_files;
  plan.calls = program(filter->calls);
  plan.arguments = program(filter->arguments);
  launch.timer.done("prepare");
  return spawn(launch, &plan);
}

// The files as they are at one moment: everything stands still, what is in memory only is written, the disk is copied. Most of the
// writing is done before that moment.
Result<SnapshotImage> ContainerRuntime::snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline) {
  GB_TRY(const auto* tree, cgroups());
  GB_TRY(const bool was_frozen, tree->is_frozen(record.id));
  GB_TRY(const auto root, sys::open_fd("/proc/" + std::to_string(process_of(record).pid) + "/root", O_RDONLY | O_DIRECTORY));
  if (!sys::is_alive(process_of(record))) return fail(Code::kSandboxEnded, "the sandbox has ended");
  if (::syncfs(root.get()) < 0) return fail_errno("syncfs");
  const auto began = Clock::now();
  if (!was_frozen) GB_TRYV(tree->freeze(record.id));
  auto copy = [&]() -> Result<void> {
    if (::syncfs(root.get()) < 0) return fail_errno("syncfs");
    return sys::copy_sparse(disk_image(record.directory), disk_image(directory));
  };
  const auto copied = copy();
  if (!was_frozen && (!copied || afterwards == Afterwards::kGoesOn)) GB_TRYV(tree->thaw(record.id));
  if (!copied) return fail(copied.error());
  SnapshotImage image;
  image.kept = Kept::kFiles;
  image.stall = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  image.parts = list_parts(directory);
  for (const auto& part : image.parts) image.min_disk_bytes = std::max(image.min_disk_bytes, part.bytes);
  return image;
}

// Overlay answers for the file system of its upper layer, which is the private disk.
void ContainerRuntime::disk_usage(const Record& record, Usage* usage) const {
  struct statfs fs{};
  if (::statfs(("/proc/" + std::to_string(process_of(record).pid) + "/root").c_str(), &fs) < 0)
    return;
  usage->disk_bytes = (fs.f_blocks - fs.f_bfree) * static_cast<uint64_t>(fs.f_bsize);
  usage->inodes = fs.f_files - fs.f_ffree;
}

Result<std::string> ContainerRuntime::engine_version() const {
  utsname name{};
  if (::uname(&name) < 0) return fail_errno("uname");
  return "linux " + std::string(name.release);
}

std::string ContainerRuntime::remedy() const {
  return "The container tier needs root, Linux 6.1 or newer with erofs, overlayfs, loop devices "
         "and user namespaces, and cgroups "
         "with memory, pids, cpu and freezer; inside another container give it CAP_SYS_ADMIN and a "
         "writable cgroup tree.";
}

}  // namespace

std::unique_ptr<Runtime> make_container_runtime(const HostConfig& config) {
  return std::make_unique<ContainerRuntime>(config);
}

}  // namespace glovebox::runtime
