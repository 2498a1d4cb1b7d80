// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/random.h"
#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/entry.h"
#include "programs/agent/operations.h"

namespace glovebox::agent {
namespace {

constexpr int kMaxDepth = 64;  // open directories at a time; what is deeper is moved up first

bool is_dot(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

// Empties directories depth first. A directory below kMaxDepth is renamed into the top one and
// emptied from there, so that neither stack nor descriptors grow with the depth.
class TreeRemover {
 public:
  explicit TreeRemover(int top) : top_(top) {}

  Result<void> empty(int fd, int depth) {
    // A directory that changes under us may show new names: as long as a pass removes something,
    // look again.
    for (bool removed = true; removed;) {
      removed = false;
      UniqueFd again(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!again) return fail_errno("opening a directory");
      const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(again.get()), &::closedir);
      if (!dir) return fail_errno("reading a directory");
      again.release();
      while (const dirent* entry = ::readdir(dir.get())) {
        if (is_dot(entry->d_name)) continue;
        GB_TRYV(remove_entry(fd, entry->d_name, depth));
        removed = true;
      }
    }
    return {};
  }

 private:
  Result<void> remove_entry(int at, const char* name, int depth) {
    if (::unlinkat(at, name, 0) == 0 || errno == ENOENT) return {};
    const int error = errno;
    if (error != EISDIR && error != EPERM) return fail_errno(name);
    if (::unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    if (errno == ENOTDIR) return fail_errno(name, error);
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno(name);
    if (depth >= kMaxDepth) {
      const std::string moved = ".glovebox-" + random_name(12) + ".del";
      if (::renameat(at, name, top_, moved.c_str()) == 0) return {};
      return fail_errno(name);
    }
    {
      UniqueFd fd = open_directory(at, name);
      if (!fd) return fail_errno(name);
      GB_TRYV(empty(fd.get(), depth + 1));
    }
    if (::unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    return fail_errno(name);
  }

  const int top_;
};

}  // namespace

Result<void> remove_tree(int at, const std::string& name) {
  UniqueFd fd = open_directory(at, name.c_str());
  if (!fd) return fail_errno(name);
  GB_TRYV(TreeRemover(fd.get()).empty(fd.get(), 0));
  if (::unlinkat(at, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) return fail_errno(name);
  return {};
}

Result<void> op_remove(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY(const bool recursive, bool_field(op.fields, "recursive", false));
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return fail_errno(path);
  if (!S_ISDIR(st.st_mode)) {
    if (::unlink(path.c_str()) != 0) return fail_errno(path);
    return op.request.respond({});
  }
  if (::rmdir(path.c_str()) == 0) return op.request.respond({});
  if (errno == EBUSY) return fail(Code::kConflict, path + ": is a mount point");
  if ((errno != ENOTEMPTY && errno != EEXIST) || !recursive)
    return fail_errno(path, errno == EEXIST ? ENOTEMPTY : errno);
  GB_TRYV(remove_tree(AT_FDCWD, path));
  return op.request.respond({});
}

}  // namespace glovebox::agent
