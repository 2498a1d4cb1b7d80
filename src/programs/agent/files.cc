// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <queue>

#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/entry.h"
#include "programs/agent/operations.h"

// stat, list, mkdir and chmod. Paths are resolved by the kernel with the user's rights, links
// included: what is reachable is the sandbox's own view, and nothing here is a boundary.
namespace glovebox::agent {
namespace {

constexpr int64_t kMaxPage = 1000;
constexpr size_t kMaxPageBytes = 3 << 20;  // below the 4 MiB of a message

// The `limit` smallest names above `after`, in order, and whether there are more. Constant memory
// for any directory.
std::vector<std::string> smallest_names(DIR* dir, const std::string& after, size_t limit,
                                        bool* more) {
  std::priority_queue<std::string> heap;  // the largest on top
  while (const dirent* entry = ::readdir(dir)) {
    std::string name = entry->d_name;
    if (name == "." || name == ".." || name <= after) continue;
    if (heap.size() == limit) {
      *more = true;
      if (name >= heap.top()) continue;
      heap.pop();
    }
    heap.push(std::move(name));
  }
  std::vector<std::string> names(heap.size());
  for (size_t i = names.size(); i-- > 0; heap.pop()) names[i] = heap.top();
  return names;
}

}  // namespace

Result<void> op_stat(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY(const bool follow, bool_field(op.fields, "follow", false));
  GB_TRY(auto entry, entry_at(op.users, path, follow));
  return op.request.respond({{"entry", std::move(entry)}});
}

Result<void> op_list(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY(const std::string after, text_field(op.fields, "after"));
  GB_TRY(const int64_t limit, int_field(op.fields, "limit", kMaxPage, 1, kMaxPage));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno(path);
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd.get()), &::closedir);
  if (!dir) return fail_errno(path);
  const int at = fd.release();  // the DIR owns it now
  bool more = false;
  const auto names = smallest_names(dir.get(), after, static_cast<size_t>(limit), &more);
  json::array entries;
  size_t bytes = 0;
  for (const std::string& name : names) {
    struct stat st;
    if (::fstatat(at, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // removed meanwhile
      return fail_errno(join_path(path, name));
    }
    json::object entry = entry_json(op.users, join_path(path, name), st, at, name);
    bytes += to_text(entry).size() + 1;
    if (bytes > kMaxPageBytes) {
      more = true;
      break;
    }
    entries.push_back(std::move(entry));
  }
  return op.request.respond({{"entries", std::move(entries)}, {"more", more}});
}

UniqueFd open_directory(int at, const char* name) {
  UniqueFd found(::openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st;
  if (!found || ::fstat(found.get(), &st) != 0) return UniqueFd();
  if (!S_ISDIR(st.st_mode)) {
    errno = ENOTDIR;
    return UniqueFd();
  }
  return UniqueFd(::openat(found.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Result<bool> make_directories(const std::string& path, mode_t mode) {
  struct stat st;
  if (::mkdir(path.c_str(), mode) == 0) return true;
  if (errno == EEXIST) {
    if (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return false;
    return fail(Code::kFileExists, path + ": exists and is not a directory");
  }
  if (errno != ENOENT) return fail_errno(path);
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (::mkdir(parent.c_str(), 0755) == 0 || errno == EEXIST) continue;
    const int error = errno;  // a read-only or foreign parent is no problem when it is there
    if (::stat(parent.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return fail_errno(parent, error);
  }
  if (::mkdir(path.c_str(), mode) == 0) return true;
  if (errno == EEXIST && ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) return true;
  return fail_errno(path);
}

Result<void> make_parents(const std::string& path) {
  auto made = make_directories(parent_of(path), 0755);
  if (made) return {};
  // To who writes below it, a parent that is a file is not a directory.
  if (made.error().code == Code::kFileExists) made.error().code = Code::kNotADirectory;
  return fail(std::move(made).error());
}

Result<void> op_mkdir(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY(const bool parents, bool_field(op.fields, "parents", false));
  GB_TRY(const int64_t mode, int_field(op.fields, "mode", 0755, 0, 07777));
  if (!parents) {
    if (::mkdir(path.c_str(), static_cast<mode_t>(mode)) != 0) return fail_errno(path);
    return op.request.respond({{"created", true}});
  }
  GB_TRY(const bool created, make_directories(path, static_cast<mode_t>(mode)));
  return op.request.respond({{"created", created}});
}

Result<void> op_chmod(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY(const int64_t mode, int_field(op.fields, "mode", -1, 0, 07777));
  if (mode < 0) return fail(Code::kInvalidArgument, "mode: is missing");
  if (::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) return fail_errno(path);
  return op.request.respond({});
}

}  // namespace glovebox::agent
