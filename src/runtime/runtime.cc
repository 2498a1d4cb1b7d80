// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sys/cgroup.h"

namespace glovebox::runtime {

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kContainer:
      return "container";
    case Tier::kGvisor:
      return "gvisor";
    case Tier::kMicrovm:
      return "microvm";
  }
  return "unknown";
}

std::optional<Tier> tier_from_name(std::string_view name) {
  for (Tier tier : {Tier::kContainer, Tier::kGvisor, Tier::kMicrovm}) {
    if (name == tier_name(tier)) return tier;
  }
  return std::nullopt;
}

std::string_view kept_name(Kept kept) { return kept == Kept::kFiles ? "files" : "memory+files"; }

std::optional<Kept> kept_from_name(std::string_view name) {
  for (Kept kept : {Kept::kFiles, Kept::kMemoryAndFiles}) {
    if (name == kept_name(kept)) return kept;
  }
  return std::nullopt;
}

Result<UniqueFd> Runtime::open_rootfs(const Rootfs&) { return fail(Code::kUnsupported, "this runtime's templates cannot be read on the host"); }

Result<SnapshotImage> Runtime::snapshot(const Record&, const std::string&, Afterwards, Deadline) {
  return fail(Code::kUnsupported, std::string(tier_name(tier())) + " sandboxes cannot be snapshotted");
}

Result<void> Runtime::check_needs(const std::map<std::string, std::string>&) { return {}; }

Result<void> enter_private_namespace() {
  // Descriptors 0 to 2 are taken in every child; a daemon started without them would hand out
  // something else under those numbers.
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return fail_errno("/dev/null");
  }
  if (::unshare(CLONE_NEWNS) < 0) return fail_errno("unshare mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_SLAVE | MS_REC, nullptr) < 0)
    return fail_errno("make mounts slaves");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) return fail_errno("PR_SET_CHILD_SUBREAPER");
  return {};
}

void leave_host(const HostConfig& config) {
  if (const auto tree = sys::CgroupTree::detect(config.cgroup_parent + "/" + config.instance)) tree->remove_parents();
}

}  // namespace glovebox::runtime
