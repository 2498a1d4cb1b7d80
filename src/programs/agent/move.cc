// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/random.h"
#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/entry.h"
#include "programs/agent/operations.h"

// move: rename(2), and between file systems (a sandbox's /tmp may be one of its own) copy, rename,
// remove.
namespace glovebox::agent {
namespace {

constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE
constexpr int kMaxCopyDepth = 128;  // directories below each other in a copy
constexpr size_t kCopyBytes = 128 * 1024;

// Errno, 0 for success. Without `overwrite` an existing target gives EEXIST, atomically where the
// file system can.
int rename_to(const std::string& from, const std::string& to, bool overwrite) {
  if (overwrite) return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), kNoReplace) == 0)
    return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  struct stat st;
  if (::lstat(to.c_str(), &st) == 0) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

Result<void> copy_bytes(int from, int to, const std::string& name) {
  std::string buffer(kCopyBytes, '\0');
  for (;;) {
    const ssize_t n = ::read(from, buffer.data(), buffer.size());
    if (n == 0) return {};
    if (n < 0) return fail_errno(name);
    for (ssize_t done = 0; done < n;) {
      const ssize_t written = ::write(to, buffer.data() + done, static_cast<size_t>(n - done));
      if (written < 0) return fail_errno(name);
      done += written;
    }
  }
}

void copy_attributes(int to, const struct stat& st) {
  [[maybe_unused]] const int owned = ::fchown(to, st.st_uid, st.st_gid);  // only root may
  ::fchmod(to, st.st_mode & 07777);
  const timespec times[2] = {st.st_atim, st.st_mtim};
  ::futimens(to, times);
}

Result<void> copy_entry(int from_at, const std::string& from, int to_at, const std::string& to,
                        int depth);

Result<void> copy_file(int from_at, const std::string& from, int to_at, const std::string& to,
                       const struct stat& st) {
  UniqueFd in(::openat(from_at, from.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!in) return fail_errno(from);
  UniqueFd out(
      ::openat(to_at, to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!out) return fail_errno(to);
  GB_TRYV(copy_bytes(in.get(), out.get(), from));
  copy_attributes(out.get(), st);
  return {};
}

Result<void> copy_link(int from_at, const std::string& from, int to_at, const std::string& to) {
  std::string target(PATH_MAX, '\0');  // not on the stack, which grows with the depth
  const ssize_t n = ::readlinkat(from_at, from.c_str(), target.data(), target.size());
  if (n < 0) return fail_errno(from);
  target.resize(static_cast<size_t>(n));
  if (::symlinkat(target.c_str(), to_at, to.c_str()) != 0) return fail_errno(to);
  return {};
}

Result<void> copy_directory(int from_at, const std::string& from, int to_at, const std::string& to,
                            const struct stat& st, int depth) {
  if (depth > kMaxCopyDepth) return fail(Code::kUnsupported, from + ": too deep to be copied");
  UniqueFd in = open_directory(from_at, from.c_str());
  if (!in) return fail_errno(from);
  if (::mkdirat(to_at, to.c_str(), 0700) != 0) return fail_errno(to);
  UniqueFd out = open_directory(to_at, to.c_str());
  if (!out) return fail_errno(to);
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(in.get()), &::closedir);
  if (!dir) return fail_errno(from);
  const int at = in.release();
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") GB_TRYV(copy_entry(at, name, out.get(), name, depth + 1));
  }
  copy_attributes(out.get(), st);
  return {};
}

Result<void> copy_entry(int from_at, const std::string& from, int to_at, const std::string& to,
                        int depth) {
  struct stat st;
  if (::fstatat(from_at, from.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(from);
  if (S_ISREG(st.st_mode)) return copy_file(from_at, from, to_at, to, st);
  if (S_ISLNK(st.st_mode)) return copy_link(from_at, from, to_at, to);
  if (S_ISDIR(st.st_mode)) return copy_directory(from_at, from, to_at, to, st, depth);
  return fail(Code::kUnsupported,
              from + ": neither file, directory nor link, and on another file system");
}

Result<void> remove_any(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return {};
  if (errno != EISDIR && errno != EPERM) return fail_errno(path);
  return remove_tree(AT_FDCWD, path);
}

Result<void> move_across(const std::string& from, const std::string& to, bool overwrite) {
  const std::string temporary = join_path(parent_of(to), ".glovebox-" + random_name(12) + ".tmp");
  auto copied = copy_entry(AT_FDCWD, from, AT_FDCWD, temporary, 0);
  const int error = copied ? rename_to(temporary, to, overwrite) : 0;
  if (!copied || error != 0) {
    [[maybe_unused]] const auto removed = remove_any(temporary);
    return copied ? fail_errno(to, error) : copied;
  }
  return remove_any(from);
}

}  // namespace

Result<void> op_move(Operation& op) {
  GB_TRY(const std::string from, path_field(op, "from"));
  GB_TRY(const std::string to, path_field(op, "to"));
  GB_TRY(const bool parents, bool_field(op.fields, "parents", false));
  GB_TRY(const bool overwrite, bool_field(op.fields, "overwrite", false));
  struct stat st;
  if (::lstat(from.c_str(), &st) != 0) return fail_errno(from);
  if (parents) {
    GB_TRYV(make_parents(to));
  }
  const int error = rename_to(from, to, overwrite);
  if (error == EXDEV) {
    GB_TRYV(move_across(from, to, overwrite));
  } else if (error != 0) {
    return fail_errno(from + " to " + to, error);
  }
  return op.request.respond({});
}

}  // namespace glovebox::agent
