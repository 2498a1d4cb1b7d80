// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// The descriptor-based mount interface (fsopen(2), fsmount(2), open_tree(2), move_mount(2),
// mount_setattr(2)). A mount that is only a descriptor is in no mount table and vanishes when the
// descriptor is closed, unless it was attached.
namespace glovebox::sys {

// key with an empty value is a flag.
using MountOptions = std::vector<std::pair<std::string, std::string>>;

// `attributes`: MOUNT_ATTR_*. The error holds what the file system said in its own words.
Result<UniqueFd> new_mount(const std::string& type, const std::string& source,
                           const MountOptions& options, unsigned attributes);
// A detached copy of the mount at `path`.
Result<UniqueFd> clone_mount(const std::string& path);
// Maps owners through the user namespace. Only on a detached mount that has no mapping yet.
Result<void> map_owners(const UniqueFd& mount, const UniqueFd& user_namespace);
// Read-only, without set-id programs and devices.
Result<void> make_read_only(const UniqueFd& mount);
Result<void> attach_mount(const UniqueFd& mount, const std::string& path);
// Lazily; not an error when nothing is mounted there.
Result<void> detach_mount(const std::string& path);

struct MountEntry {
  std::string root;  // of the mount inside its file system
  std::string target;
  std::string type;
  std::string source;
  std::string super_options;
};
// Reads /proc/<pid>/mountinfo (default: our own); octal escapes are decoded.
std::vector<MountEntry> mount_table(const std::string& pid = "self");
std::vector<MountEntry> parse_mount_table(const std::string& text);
bool is_mount_point(const std::string& path);

}  // namespace glovebox::sys
