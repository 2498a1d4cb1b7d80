// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/volumes.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "sys/ext4.h"
#include "sys/mounts.h"

namespace glovebox::runtime {

Result<VolumeMounts> VolumeMounts::make(const StartSpec& spec) {
  if (spec.volumes.size() > kMaxVolumes) return fail(Code::kInvalidArgument, "too many volumes");
  VolumeMounts out;
  for (const VolumeDisk& disk : spec.volumes) {
    const std::string name =
        spec.directory + "/volume-" + std::to_string(out.volumes_.size()) + ".img";
    if (disk.read_only) GB_TRYV(sys::recover_ext4(disk.image_path));  // a read-only mount cannot
    if (::link(disk.image_path.c_str(), name.c_str()) != 0) {
      const int error = errno;
      return fail_errno(
          "link " + disk.image_path +
              (error == EXDEV ? " (volumes and sandboxes must be on one file system)" : ""),
          error);
    }
    Volume& volume = out.volumes_.emplace_back();
    GB_TRY(volume.mount, sys::mount_ext4(name, disk.read_only));
    volume.parts = split(std::string_view(disk.path).substr(1), '/');
  }
  for (Volume& volume : out.volumes_) {
    for (const std::string& part : volume.parts) volume.part_texts.push_back(part.c_str());
    out.plans_.push_back({volume.mount.get(), volume.part_texts.data(), volume.part_texts.size()});
  }
  return out;
}

Result<void> VolumeMounts::map_owners(const UniqueFd& user_namespace) const {
  for (const Volume& volume : volumes_) GB_TRYV(sys::map_owners(volume.mount, user_namespace));
  return {};
}

void VolumeMounts::point_to(LaunchCommon* plan) const {
  plan->volumes = plans_.data();
  plan->volume_count = plans_.size();
}

tl::unexpected<Error> volume_error(int error, const StartSpec& spec) {
  std::string paths;
  for (const VolumeDisk& disk : spec.volumes) paths += (paths.empty() ? "" : ", ") + disk.path;
  if (error == ENOTDIR || error == ELOOP) {
    return fail(
        Code::kInvalidPath,
        "the template has something else than directories on the way to a volume's path: " + paths,
        {{"path", paths}});
  }
  return fail_errno("attach volumes at " + paths, error);
}

Result<void> check_volume_paths(const UniqueFd& rootfs, const StartSpec& spec) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  for (const VolumeDisk& disk : spec.volumes) {
    const UniqueFd found(static_cast<int>(
        ::syscall(SYS_openat2, rootfs.get(), disk.path.c_str() + 1, &how, sizeof how)));
    if (!found && errno != ENOENT) return volume_error(errno, spec);
  }
  return {};
}

}  // namespace glovebox::runtime
