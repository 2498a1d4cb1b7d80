// SPDX-License-Identifier: Apache-2.0
#include "image/volume_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "base/rollback.h"
#include "base/unique_fd.h"
#include "image/files.h"
#include "image/helper.h"
#include "image/helper_modes.h"
#include "sys/command.h"
#include "sys/ext4.h"
#include "sys/files.h"

namespace glovebox::image {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kUserId = 1000;  // as in templates
constexpr auto kPatience = 600s;

tl::unexpected<Error> explain(Error error) {
  if (error.message.find("No space left") != std::string::npos) error.code = Code::kDiskFull;
  return fail(std::move(error));
}

// `change` works on a copy; when it fails, or this process dies, the disk is what it was.
Result<void> change_disk(const std::string& path,
                         const std::function<Result<void>(const std::string& draft)>& change) {
  const std::string draft = path + ".new";
  Rollback undo;
  undo.add([draft] { (void)::unlink(draft.c_str()); });
  auto copied = sys::copy_sparse(path, draft);
  if (!copied) return explain(std::move(copied).error());
  auto changed = change(draft);
  if (!changed) return explain(std::move(changed).error());
  GB_TRYV(sys::wait_unmounted(draft));
  GB_TRYV(sync_path(draft));
  if (::rename(draft.c_str(), path.c_str()) != 0) return fail_errno("rename " + draft);
  undo.dismiss();
  return sync_path(path.substr(0, path.rfind('/')));
}

// lost+found is an empty directory to a user's eyes, and in the way of programs that want an empty
// one; fsck makes it when it needs it.
Result<void> set_up_root(const std::string& path) {
  GB_TRY(const UniqueFd mount, sys::mount_ext4(path, false));
  if (::fchmodat(mount.get(), ".", 0777, 0) != 0) return fail_errno("chmod the volume's root");
  if (::unlinkat(mount.get(), "lost+found", AT_REMOVEDIR) != 0 && errno != ENOENT)
    return fail_errno("remove lost+found");
  return {};
}

}  // namespace

Result<void> make_volume_disk(const std::string& path, uint64_t bytes) {
  const std::string owner = std::to_string(kUserId) + ":" + std::to_string(kUserId);
  auto made = sys::run_command(
      {"mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard,root_owner=" + owner,
       path, std::to_string(bytes >> 10) + "k"},
      kPatience);
  if (!made) return explain(std::move(made).error());
  if (::chmod(path.c_str(), 0600) != 0) return fail_errno(path);
  GB_TRYV(set_up_root(path));
  GB_TRYV(sys::wait_unmounted(path));
  GB_TRYV(sync_path(path));
  return sync_path(path.substr(0, path.rfind('/')));
}

Result<void> grow_volume_disk(const std::string& path, uint64_t bytes) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return fail_errno(path);
  if (static_cast<uint64_t>(st.st_size) >= bytes) return {};
  return change_disk(path, [&](const std::string& draft) -> Result<void> {
    GB_TRYV(sys::recover_ext4(draft));
    if (::truncate(draft.c_str(), static_cast<off_t>(bytes)) != 0)
      return fail_errno("truncate " + draft);
    // It insists on a check that was just made; -f says that there is no need.
    GB_TRYV(sys::run_command({"resize2fs", "-f", draft}, kPatience));
    return {};
  });
}

Result<void> export_volume_disk(const std::string& path, int out) {
  GB_TRYV(sys::recover_ext4(path));
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return fail_errno(path);
  auto packed = run_helper_job({kModeVolumePack, {path, std::to_string(st.st_size)}, {out}},
                               [](std::string_view) {});
  GB_TRYV(sys::wait_unmounted(path));
  return packed;
}

Result<void> import_volume_disk(const std::string& path, int archive) {
  return change_disk(path, [&](const std::string& draft) -> Result<void> {
    struct stat st{};
    if (::stat(draft.c_str(), &st) != 0) return fail_errno(draft);
    return run_helper_job({kModeVolumeUnpack, {draft, std::to_string(st.st_size)}, {archive}},
                          [](std::string_view) {});
  });
}

}  // namespace glovebox::image
