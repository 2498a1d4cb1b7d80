// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/entry.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>

namespace glovebox::agent {
namespace {

const char* type_name(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symlink";
    case S_IFIFO:
      return "fifo";
    case S_IFSOCK:
      return "socket";
    case S_IFCHR:
      return "char";
    case S_IFBLK:
      return "block";
    default:
      return "file";
  }
}

std::string without_end_slashes(const std::string& path) {
  const size_t last = path.find_last_not_of('/');
  return last == std::string::npos ? std::string() : path.substr(0, last + 1);
}

}  // namespace

std::string base_name(const std::string& path) {
  const std::string trimmed = without_end_slashes(path);
  if (trimmed.empty()) return "/";
  return trimmed.substr(trimmed.rfind('/') + 1);  // npos + 1 is 0
}

std::string parent_of(const std::string& path) {
  const std::string trimmed = without_end_slashes(path);
  const size_t slash = trimmed.rfind('/');
  if (slash == std::string::npos) return trimmed.empty() ? "/" : ".";
  return slash == 0 ? "/" : trimmed.substr(0, slash);
}

std::string join_path(const std::string& directory, const std::string& name) {
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

json::object entry_json(Users& users, const std::string& path, const struct stat& st, int directory,
                        const std::string& name) {
  json::object entry;
  entry["name"] = json_bytes(base_name(path));
  entry["path"] = json_bytes(path);
  entry["type"] = type_name(st.st_mode);
  entry["size"] = static_cast<int64_t>(st.st_size);
  entry["mode"] = st.st_mode & 07777;
  entry["uid"] = st.st_uid;
  entry["gid"] = st.st_gid;
  entry["user"] = json_bytes(users.user_name(st.st_uid));
  entry["group"] = json_bytes(users.group_name(st.st_gid));
  entry["mtime_ms"] = static_cast<int64_t>(st.st_mtim.tv_sec) * 1000 + st.st_mtim.tv_nsec / 1000000;
  entry["ctime_ns"] = static_cast<int64_t>(st.st_ctim.tv_sec) * 1000000000 + st.st_ctim.tv_nsec;
  if (S_ISLNK(st.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = ::readlinkat(directory, name.c_str(), target, sizeof target);
    if (n >= 0) entry["target"] = json_bytes(std::string_view(target, static_cast<size_t>(n)));
  }
  return entry;
}

Result<json::object> entry_at(Users& users, const std::string& path, bool follow) {
  struct stat st;
  if (::fstatat(AT_FDCWD, path.c_str(), &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno(path);
  }
  return entry_json(users, path, st, AT_FDCWD, path);
}

}  // namespace glovebox::agent
