// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "runtime/internal/launch.h"
#include "runtime/runtime.h"

namespace glovebox::runtime {

// The volumes of a sandbox that starts, mounted nowhere yet.
//
// Each image gets a second name in the sandbox's directory, and its loop device is opened by that
// one: so the device, and with it the whole mount, is seen to be the sandbox's wherever loop
// devices are looked for.
class VolumeMounts {
 public:
  static Result<VolumeMounts> make(const StartSpec& spec);
  // Maps the owners of files; at most once.
  Result<void> map_owners(const UniqueFd& user_namespace) const;
  // `plan` must not outlive this object.
  void point_to(LaunchCommon* plan) const;

 private:
  struct Volume {
    UniqueFd mount;
    std::vector<std::string> parts;  // of its path
    std::vector<const char*> part_texts;
  };
  std::vector<Volume> volumes_;
  std::vector<VolumePlan> plans_;
};

// The error of a child that failed at LaunchStep::kVolumes.
tl::unexpected<Error> volume_error(int error, const StartSpec& spec);

// Whether the volumes can be mounted in the template without following any link: for an engine whose guest mounts them itself.
// kInvalidPath otherwise. What is not there will be made.
Result<void> check_volume_paths(const UniqueFd& rootfs, const StartSpec& spec);

// Where the engine's child puts a volume: <stage>/v<number>.
inline constexpr size_t kMaxVolumes = 8;

}  // namespace glovebox::runtime
