// SPDX-License-Identifier: Apache-2.0
#include "image/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/random.h"
#include "base/text.h"

namespace glovebox::image {
namespace {

struct CloseDir {
  void operator()(DIR* d) const { ::closedir(d); }
};
using Dir = std::unique_ptr<DIR, CloseDir>;

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// A tree that an image brought may be deeper than there are descriptors or stack: what lies deeper
// than this is first moved to the top.
constexpr int kMaxDepth = 64;

struct Removal {
  int top = -1;  // the directory being emptied
  dev_t device = 0;
  unsigned moved = 0;
};

int move_to_top(Removal& removal, int at, const char* name) {
  for (;;) {
    const std::string free_name = ".deep-" + std::to_string(removal.moved++);
    if (::syscall(SYS_renameat2, at, name, removal.top, free_name.c_str(), RENAME_NOREPLACE) == 0)
      return 0;
    if (errno != EEXIST) return errno;
  }
}

// Empties the directory `fd`, which it takes. 0 or an errno.
int empty_directory(UniqueFd fd, Removal& removal, int depth) {
  Dir dir(::fdopendir(fd.get()));
  if (!dir) return errno;
  const int at = fd.release();
  while (const dirent* e = ::readdir(dir.get())) {
    if (std::strcmp(e->d_name, ".") == 0 || std::strcmp(e->d_name, "..") == 0) continue;
    if (::unlinkat(at, e->d_name, 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) return errno;
    UniqueFd child(::openat(at, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat st;
    if (!child || ::fstat(child.get(), &st) != 0) return errno;
    if (st.st_dev != removal.device) return EXDEV;
    if (depth >= kMaxDepth) {
      if (const int error = move_to_top(removal, at, e->d_name)) return error;
      continue;
    }
    if (const int error = empty_directory(std::move(child), removal, depth + 1)) return error;
    if (::unlinkat(at, e->d_name, AT_REMOVEDIR) != 0) return errno;
  }
  return 0;
}

Result<UniqueFd> open_lock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno("open " + path);
  return fd;
}

}  // namespace

int lock_fd(int fd, bool is_waiting) {
  return static_cast<int>(::syscall(SYS_flock, fd, LOCK_EX | (is_waiting ? 0 : LOCK_NB)));
}

Result<std::string> read_fd(int fd, size_t max_bytes, const std::string& name) {
  struct stat st;
  if (::fstat(fd, &st) != 0) return fail_errno("stat " + name);
  if (!S_ISREG(st.st_mode)) return fail(Code::kCorrupt, name + " is not a regular file");
  std::string out;
  for (;;) {
    const size_t have = out.size();
    out.resize(have + 65536);
    const ssize_t n = ::read(fd, out.data() + have, 65536);
    out.resize(have + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + name);
    if (n == 0) return out;
    if (out.size() > max_bytes)
      return fail(Code::kCorrupt, name + " is longer than " + human_bytes(max_bytes));
  }
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno("open " + path);
  return read_fd(fd.get(), max_bytes, path);
}

Result<void> write_fd(int fd, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write " + name);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<void> replace_file(const std::string& path, std::string_view bytes, unsigned mode) {
  const std::string aside = path + ".new-" + random_name(8);
  UniqueFd fd(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail_errno("create " + aside);
  auto written = write_fd(fd.get(), bytes, aside);
  if (written && ::fsync(fd.get()) != 0) written = fail_errno("sync " + aside);
  if (written && ::rename(aside.c_str(), path.c_str()) != 0)
    written = fail_errno("rename " + aside);
  if (!written) {
    ::unlink(aside.c_str());
    return written;
  }
  return sync_path(parent_of(path));
}

Result<void> make_directories(const std::string& path, unsigned mode) {
  if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || path == "/" || path.find('/') == std::string::npos)
    return fail_errno("make directory " + path);
  GB_TRYV(make_directories(parent_of(path), mode));
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return fail_errno("make directory " + path);
  return {};
}

Result<void> sync_path(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + path);
  if (::fsync(fd.get()) != 0) return fail_errno("sync " + path);
  return {};
}

Result<void> remove_tree(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno("stat " + path);
  }
  if (!S_ISDIR(st.st_mode)) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno("remove " + path);
    return {};
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno("open " + path);
  // Again as long as deep parts were moved up: each round sees those of the one before.
  Removal removal{.top = fd.get(), .device = st.st_dev};
  for (unsigned before = 0, is_first = 1; is_first != 0 || removal.moved != before; is_first = 0) {
    before = removal.moved;
    UniqueFd again(::openat(fd.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!again) return fail_errno("open " + path);
    if (const int error = empty_directory(std::move(again), removal, 0)) {
      return fail_errno("remove below " + path, error);
    }
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) return fail_errno("remove " + path);
  return {};
}

Result<std::vector<std::string>> directory_names(const std::string& path) {
  std::vector<std::string> names;
  Dir dir(::opendir(path.c_str()));
  if (!dir) {
    if (errno == ENOENT) return names;
    return fail_errno("list " + path);
  }
  while (const dirent* e = ::readdir(dir.get())) {
    const std::string name = e->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) {
  struct stat st;
  return ::lstat(path.c_str(), &st) == 0;
}

Result<FileLock> FileLock::wait(const std::string& path) {
  GB_TRY(auto fd, open_lock(path));
  while (lock_fd(fd.get(), true) != 0) {
    if (errno != EINTR) return fail_errno("lock " + path);
  }
  return FileLock(std::move(fd));
}

Result<FileLock> FileLock::attempt(const std::string& path) {
  GB_TRY(auto fd, open_lock(path));
  if (lock_fd(fd.get(), false) != 0) {
    if (errno == EWOULDBLOCK) return fail(Code::kConflict, path + " is locked");
    return fail_errno("lock " + path);
  }
  return FileLock(std::move(fd));
}

}  // namespace glovebox::image
