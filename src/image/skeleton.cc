// SPDX-License-Identifier: Apache-2.0
#include "image/skeleton.h"

#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/text.h"
#include "base/unique_fd.h"
#include "image/files.h"

namespace glovebox::image {
namespace {

constexpr size_t kMaxAccountFile = 1 << 20;
constexpr unsigned kUserId = 1000;
constexpr unsigned kMaxPath = 4000;             // leaves room for where mkfs.erofs sees the tree
constexpr time_t kSettledTime = 1'735'689'600;  // 2025-01-01

bool is_directory(const std::string& path) {
  struct stat st;
  return ::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

// A real directory at `path`; something else of that name is replaced.
Result<void> directory(const std::string& path, unsigned mode, unsigned uid, unsigned gid,
                       bool is_mode_forced) {
  const bool existed = is_directory(path);
  if (!existed) {
    if (path_exists(path)) GB_TRYV(remove_tree(path));
    if (::mkdir(path.c_str(), mode) != 0) return fail_errno("make directory " + path);
  }
  if (existed && !is_mode_forced) return {};
  if (::lchown(path.c_str(), uid, gid) != 0) return fail_errno("own " + path);
  if (::chmod(path.c_str(), mode) != 0) return fail_errno("set mode of " + path);
  return {};
}

// Replaces whatever is at `path` (also a symbolic link) by a regular file.
Result<void> regular_file(const std::string& path, std::string_view content, unsigned mode,
                          unsigned uid, unsigned gid) {
  GB_TRYV(remove_tree(path));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return fail_errno("create " + path);
  GB_TRYV(write_fd(fd.get(), content, path));
  if (::fchown(fd.get(), uid, gid) != 0) return fail_errno("own " + path);
  if (::fchmod(fd.get(), mode) != 0) return fail_errno("set mode of " + path);
  return {};
}

bool has_entry(const std::string& text, const std::string& name) {
  return text.rfind(name + ":", 0) == 0 || text.find("\n" + name + ":") != std::string::npos;
}

struct Account {
  std::string name, line;
};

// Adds the accounts that are missing to a file in the format of passwd(5). An image may have it as
// a link; it becomes a file.
Result<void> add_accounts(const std::string& path, const std::vector<Account>& accounts,
                          unsigned mode) {
  std::string text;
  if (path_exists(path)) {
    auto old = read_file(path, kMaxAccountFile);
    if (old) text = *old;  // unreadable or not a file: made anew
  }
  const std::string before = text;
  for (const auto& account : accounts) {
    if (has_entry(text, account.name)) continue;
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += account.line + "\n";
  }
  struct stat st;
  const bool is_file = ::lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
  if (is_file && text == before) return {};
  return regular_file(path, text, is_file ? st.st_mode & 07777 : mode, is_file ? st.st_uid : 0,
                      is_file ? st.st_gid : 0);
}

Result<void> add_users() {
  // Where bash is absent (Alpine, distroless) the name of a shell still has to stand there.
  const std::string shell = ::access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
  GB_TRYV(add_accounts("/etc/passwd",
                       {{"root", "root:x:0:0:root:/root:" + shell},
                        {"user", "user:x:1000:1000:user:/home/user:" + shell}},
                       0644));
  GB_TRYV(add_accounts("/etc/group", {{"root", "root:x:0:"}, {"user", "user:x:1000:"}}, 0644));
  return add_accounts(
      "/etc/shadow", {{"root", "root:*:19000:0:99999:7:::"}, {"user", "user:*:19000:0:99999:7:::"}},
      0600);
}

Result<void> add_shell_files() {
  for (const char* name : {".bashrc", ".profile", ".bash_logout"}) {
    const std::string to = std::string("/home/user/") + name;
    const auto text = read_file(std::string("/etc/skel/") + name, kMaxAccountFile);
    if (text && !path_exists(to)) GB_TRYV(regular_file(to, *text, 0644, kUserId, kUserId));
  }
  return {};
}

}  // namespace

Result<void> add_skeleton() {
  ::umask(022);
  for (const char* path : {"/.glovebox", "/proc", "/sys", "/dev", "/etc", "/home"}) {
    GB_TRYV(directory(path, 0755, 0, 0, false));
  }
  GB_TRYV(directory("/root", 0700, 0, 0, false));
  GB_TRYV(directory("/tmp", 01777, 0, 0, true));
  if (!path_exists("/var")) GB_TRYV(directory("/var", 0755, 0, 0, false));
  if (is_directory("/var") && !path_exists("/var/tmp"))
    GB_TRYV(directory("/var/tmp", 01777, 0, 0, true));
  if (!path_exists("/run")) GB_TRYV(directory("/run", 0755, 0, 0, false));
  GB_TRYV(directory("/home/user", 0755, kUserId, kUserId, true));
  GB_TRYV(directory("/workspace", 0755, kUserId, kUserId, true));
  GB_TRYV(add_users());
  GB_TRYV(add_shell_files());
  if (!path_exists("/etc/mtab") && ::symlink("../proc/self/mounts", "/etc/mtab") != 0)
    return fail_errno("link /etc/mtab");
  // Bound over or written when a sandbox starts, and never a link out of /etc.
  GB_TRYV(regular_file("/etc/resolv.conf", "", 0644, 0, 0));
  GB_TRYV(regular_file("/etc/hostname", "sandbox\n", 0644, 0, 0));
  GB_TRYV(regular_file(
      "/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n", 0644, 0, 0));
  return regular_file("/etc/machine-id", "", 0444, 0, 0);
}

Result<void> settle_times(time_t start) {
  char top[] = "/";
  char* const roots[] = {top, nullptr};
  FTS* walk = ::fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, nullptr);
  if (walk == nullptr) return fail_errno("walk the image");
  Result<void> result;
  while (const FTSENT* e = ::fts_read(walk)) {
    // Links can build trees deeper than any path; no tool could read them, mkfs.erofs among them.
    if ((e->fts_info == FTS_NS || e->fts_info == FTS_ERR || e->fts_info == FTS_DNR) ||
        e->fts_pathlen > kMaxPath) {
      result = fail(Code::kPayloadTooLarge, "the image has a path longer than 4000 bytes",
                    {{"limit", "path_bytes"}});
      break;
    }
    if (e->fts_info == FTS_DP || e->fts_statp->st_mtime < start) continue;
    const timespec times[2] = {{kSettledTime, 0}, {kSettledTime, 0}};
    if (::utimensat(AT_FDCWD, e->fts_accpath, times, AT_SYMLINK_NOFOLLOW) != 0)
      result = fail_errno("set times in the image");
  }
  ::fts_close(walk);
  return result;
}

Result<void> add_nodes(const std::vector<RecipeNode>& nodes) {
  for (const auto& node : nodes) {
    GB_TRYV(make_directories(node.path.substr(0, std::max<size_t>(1, node.path.rfind('/'))), 0755));
    if (node.is_directory) {
      GB_TRYV(directory(node.path, node.mode, node.uid, node.gid, true));
    } else {
      GB_TRYV(regular_file(node.path, node.content, node.mode, node.uid, node.gid));
    }
  }
  return {};
}

}  // namespace glovebox::image
