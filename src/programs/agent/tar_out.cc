// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/entry.h"
#include "programs/agent/operations.h"
#include "programs/agent/tar_format.h"

namespace glovebox::agent {
namespace {

constexpr int kMaxDepth = 200;  // an open directory and some stack frames each
constexpr size_t kEndBytes = 2 * kTarBlock;

class TarOut {
 public:
  explicit TarOut(Operation& op) : op_(op) {}

  Result<void> add(int at, const std::string& name, const std::string& path, int depth) {
    struct stat st;
    if (::fstatat(at, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT && depth > 0) return {};  // removed meanwhile
      return fail_errno(path);
    }
    if (S_ISREG(st.st_mode)) return add_file(at, name, path);
    if (S_ISLNK(st.st_mode)) return add_link(at, name, path, st);
    if (S_ISDIR(st.st_mode)) return add_directory(at, name, path, st, depth);
    return {};  // sockets, FIFOs and devices have no content to carry
  }

  Result<void> add_contents(UniqueFd fd, const std::string& path, int depth) {
    if (depth > kMaxDepth)
      return fail(Code::kUnsupported, path + ": directories are nested too deep");
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd.get()), &::closedir);
    if (!dir) return fail_errno(path);
    const int at = fd.release();
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      GB_TRYV(add(at, name, path.empty() ? name : path + "/" + name, depth + 1));
    }
    return {};
  }

  Result<void> finish() {
    buffer_.append(kEndBytes, '\0');
    return flush();
  }

 private:
  TarEntry describe(char type, const std::string& path, const struct stat& st) {
    TarEntry entry;
    entry.type = type;
    entry.path = path;
    entry.mode = st.st_mode & 07777;
    entry.uid = st.st_uid;
    entry.gid = st.st_gid;
    entry.user = op_.users.user_name(st.st_uid);
    entry.group = op_.users.group_name(st.st_gid);
    entry.mtime = st.st_mtim.tv_sec;
    return entry;
  }

  Result<void> add_directory(int at, const std::string& name, const std::string& path,
                             const struct stat& st, int depth) {
    GB_TRYV(put(tar_header(describe('5', path + "/", st))));
    UniqueFd fd = open_directory(at, name.c_str());
    if (!fd) return errno == ENOENT ? Result<void>() : fail_errno(path);
    return add_contents(std::move(fd), path, depth);
  }

  Result<void> add_link(int at, const std::string& name, const std::string& path,
                        const struct stat& st) {
    std::string target(PATH_MAX, '\0');  // not on the stack, which grows with the depth
    const ssize_t n = ::readlinkat(at, name.c_str(), target.data(), target.size());
    if (n < 0) return errno == ENOENT ? Result<void>() : fail_errno(path);
    TarEntry entry = describe('2', path, st);
    entry.target = target.substr(0, static_cast<size_t>(n));
    return put(tar_header(entry));
  }

  // The header promises the size of this moment: what is appended meanwhile is left out, what is
  // cut off becomes an error.
  Result<void> add_file(int at, const std::string& name, const std::string& path) {
    UniqueFd fd(
        ::openat(at, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd) return errno == ENOENT ? Result<void>() : fail_errno(path);
    struct stat st;
    if (::fstat(fd.get(), &st) != 0) return fail_errno(path);
    if (!S_ISREG(st.st_mode)) return {};
    TarEntry entry = describe('0', path, st);
    entry.size = static_cast<uint64_t>(st.st_size);
    GB_TRYV(put(tar_header(entry)));
    std::string piece(channel::kMaxPayloadFromAgent, '\0');
    for (uint64_t left = entry.size; left > 0;) {
      const ssize_t n = ::read(fd.get(), piece.data(), std::min<uint64_t>(left, piece.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return fail_errno(path);
      if (n == 0) return fail(Code::kConflict, path + ": became shorter while it was read");
      GB_TRYV(put(std::string_view(piece.data(), static_cast<size_t>(n))));
      left -= static_cast<uint64_t>(n);
    }
    return put(std::string(tar_padding(entry.size), '\0'));
  }

  Result<void> put(std::string_view bytes) {
    buffer_.append(bytes);
    return buffer_.size() < channel::kMaxPayloadFromAgent ? Result<void>() : flush();
  }
  Result<void> flush() {
    GB_TRYV(op_.request.send_data(buffer_));
    buffer_.clear();
    return {};
  }

  Operation& op_;
  std::string buffer_;
};

}  // namespace

Result<void> op_tar_out(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return fail_errno(path);
  UniqueFd directory;
  if (S_ISDIR(st.st_mode)) {
    directory.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) return fail_errno(path);
  } else if (!S_ISREG(st.st_mode)) {
    return fail(Code::kInvalidArgument, path + ": neither a directory nor a regular file");
  }
  GB_TRYV(op.request.respond({}));
  op.request.begin_data();
  TarOut tar(op);
  if (directory) {
    GB_TRYV(tar.add_contents(std::move(directory), "", 0));
  } else {
    GB_TRYV(tar.add(AT_FDCWD, path, base_name(path), 0));
  }
  GB_TRYV(tar.finish());
  return op.request.end_data();
}

}  // namespace glovebox::agent
