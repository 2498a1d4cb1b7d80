// SPDX-License-Identifier: Apache-2.0
#include "sys/mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "sys/files.h"

extern "C" int umount2(const char* target,
                       int flags) noexcept;  // <sys/mount.h> clashes with <linux/mount.h>

namespace glovebox::sys {
namespace {

constexpr int kDetach = 2;  // MNT_DETACH

int fs_config(const UniqueFd& context, unsigned command, const char* key, const char* value) {
  return static_cast<int>(::syscall(SYS_fsconfig, context.get(), command, key, value, 0));
}

// The kernel keeps its complaints ("e ext4: bad option") in the context; one read gives one line.
tl::unexpected<Error> context_error(const UniqueFd& context, const std::string& what, int error) {
  std::string said;
  char line[512];
  for (ssize_t n; (n = ::read(context.get(), line, sizeof line)) > 0;) {
    said += "; " + std::string(line, static_cast<size_t>(n));
    while (!said.empty() && said.back() == '\n') said.pop_back();
  }
  return fail(errno_code(error), "mount " + what + ": " + errno_text(error) + said);
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                               (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<UniqueFd> new_mount(const std::string& type, const std::string& source,
                           const MountOptions& options, unsigned attributes) {
  UniqueFd context(static_cast<int>(::syscall(SYS_fsopen, type.c_str(), FSOPEN_CLOEXEC)));
  if (!context) return fail_errno("fsopen " + type);
  if (!source.empty() && fs_config(context, FSCONFIG_SET_STRING, "source", source.c_str()) < 0) {
    return context_error(context, type + " from " + source, errno);
  }
  for (const auto& [key, value] : options) {
    int rc = value.empty() ? fs_config(context, FSCONFIG_SET_FLAG, key.c_str(), nullptr)
                           : fs_config(context, FSCONFIG_SET_STRING, key.c_str(), value.c_str());
    if (rc < 0) return context_error(context, type + " option " + key, errno);
  }
  if (fs_config(context, FSCONFIG_CMD_CREATE, nullptr, nullptr) < 0) {
    return context_error(context, type + " from " + source, errno);
  }
  UniqueFd mount(
      static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, attributes)));
  if (!mount) return context_error(context, type + " from " + source, errno);
  return mount;
}

Result<UniqueFd> clone_mount(const std::string& path) {
  UniqueFd mount(static_cast<int>(
      ::syscall(SYS_open_tree, AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!mount) return fail_errno("open_tree " + path);
  return mount;
}

Result<void> map_owners(const UniqueFd& mount, const UniqueFd& user_namespace) {
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_IDMAP;
  attr.userns_fd = static_cast<uint64_t>(user_namespace.get());
  if (::syscall(SYS_mount_setattr, mount.get(), "", AT_EMPTY_PATH, &attr, sizeof attr) < 0) {
    return fail_errno("mount_setattr (idmapped mount)");
  }
  return {};
}

Result<void> make_read_only(const UniqueFd& mount) {
  mount_attr attr{};
  attr.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  if (::syscall(SYS_mount_setattr, mount.get(), "", AT_EMPTY_PATH, &attr, sizeof attr) < 0) return fail_errno("mount_setattr (read-only)");
  return {};
}

Result<void> attach_mount(const UniqueFd& mount, const std::string& path) {
  if (::syscall(SYS_move_mount, mount.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) <
      0) {
    return fail_errno("move_mount to " + path);
  }
  return {};
}

Result<void> detach_mount(const std::string& path) {
  if (::umount2(path.c_str(), kDetach) == 0 || errno == EINVAL || errno == ENOENT) return {};
  return fail_errno("umount " + path);
}

// 36 35 98:0 /root /target opts tag:x - type source super
std::vector<MountEntry> parse_mount_table(const std::string& text) {
  std::vector<MountEntry> entries;
  for (const auto& line : split(text, '\n')) {
    auto words = split(line, ' ');
    size_t dash = 6;
    while (dash < words.size() && words[dash] != "-") ++dash;
    if (dash + 3 >= words.size()) continue;
    entries.push_back({unescape(words[3]), unescape(words[4]), words[dash + 1],
                       unescape(words[dash + 2]), unescape(words[dash + 3])});
  }
  return entries;
}

std::vector<MountEntry> mount_table(const std::string& pid) {
  auto text = read_file("/proc/" + pid + "/mountinfo", 16 << 20);
  return text ? parse_mount_table(*text) : std::vector<MountEntry>();
}

bool is_mount_point(const std::string& path) {
  struct statx info{};
  if (::statx(AT_FDCWD, path.c_str(), AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_TYPE, &info) < 0)
    return false;
  return (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

}  // namespace glovebox::sys
