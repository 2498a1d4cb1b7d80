// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/random.h"
#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/entry.h"
#include "programs/agent/file_writer.h"
#include "programs/agent/operations.h"

// read and write.
namespace glovebox::agent {
namespace {

constexpr int kMaxLinks = 40;

Result<UniqueFd> open_for_reading(const std::string& path, struct stat* st) {
  // Non-blocking, so that a FIFO without a writer or a device does not hold us; then only regular
  // files are read.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENXIO) return fail(Code::kInvalidArgument, path + ": is a socket or device");
  if (!fd) return fail_errno(path);
  if (::fstat(fd.get(), st) != 0) return fail_errno(path);
  if (S_ISDIR(st->st_mode)) return fail(Code::kIsADirectory, path + ": is a directory");
  if (!S_ISREG(st->st_mode)) return fail(Code::kInvalidArgument, path + ": is not a regular file");
  return fd;
}

// Files of /proc and the like have size 0 and content.
bool size_is_known(int fd, const struct stat& st) {
  if (st.st_size > 0) return true;
  struct statfs fs;
  if (::fstatfs(fd, &fs) != 0) return false;
  constexpr long kMade[] = {PROC_SUPER_MAGIC,    SYSFS_MAGIC,   CGROUP_SUPER_MAGIC,
                            CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC};
  return std::find(std::begin(kMade), std::end(kMade), static_cast<long>(fs.f_type)) ==
         std::end(kMade);
}

struct Range {
  uint64_t offset = 0;
  std::optional<uint64_t> length;  // what will be sent; unknown: to the end
};

Result<Range> range_of(const Operation& op, int fd, const struct stat& st) {
  GB_TRY(const int64_t offset, int_field(op.fields, "offset", 0, 0, INT64_MAX));
  GB_TRY(const int64_t length, int_field(op.fields, "length", -1, 0, INT64_MAX));
  Range range{static_cast<uint64_t>(offset), std::nullopt};
  if (length >= 0) range.length = static_cast<uint64_t>(length);
  if (!size_is_known(fd, st)) return range;
  const auto size = static_cast<uint64_t>(st.st_size);
  const uint64_t rest = range.offset < size ? size - range.offset : 0;
  range.length = std::min(range.length.value_or(rest), rest);
  return range;
}

Result<void> send_range(Operation& op, int fd, const Range& range, bool promised) {
  std::string buffer(channel::kMaxPayloadFromAgent, '\0');
  uint64_t left = range.length.value_or(UINT64_MAX);
  uint64_t at = range.offset;
  while (left > 0) {
    const size_t wanted = std::min<uint64_t>(left, buffer.size());
    const ssize_t n = ::pread(fd, buffer.data(), wanted, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return fail_errno("read");
    if (n <= 0) break;
    GB_TRYV(op.request.send_data(std::string_view(buffer.data(), static_cast<size_t>(n))));
    at += static_cast<uint64_t>(n);
    left -= static_cast<uint64_t>(n);
  }
  if (promised && left > 0)
    return fail(Code::kConflict, "the file became shorter while it was read");
  return op.request.end_data();
}

// Where a write to `path` really goes: the end of its links, which need not exist.
Result<std::string> resolve_links(std::string path) {
  for (int i = 0; i < kMaxLinks; ++i) {
    char target[PATH_MAX];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    if (n < 0) return path;
    const std::string text(target, static_cast<size_t>(n));
    path = text.starts_with('/') ? text : join_path(parent_of(path), text);
  }
  return fail_errno(path, ELOOP);
}

Result<void> take_data(Operation& op, FileWriter& writer) {
  for (;;) {
    GB_TRY(const auto piece, op.request.receive());
    if (!piece) return {};
    GB_TRYV(writer.append(*piece));
  }
}

}  // namespace

Result<void> op_read(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  struct stat st;
  GB_TRY(const UniqueFd fd, open_for_reading(path, &st));
  GB_TRY(const Range range, range_of(op, fd.get(), st));
  json::object answer{{"entry", entry_json(op.users, path, st, AT_FDCWD, path)}};
  const bool promised = size_is_known(fd.get(), st);
  if (promised) answer["length"] = *range.length;
  GB_TRYV(op.request.respond(std::move(answer)));
  op.request.begin_data();
  return send_range(op, fd.get(), range, promised);
}

Result<void> op_write(Operation& op) {
  GB_TRY(const std::string asked, path_field(op, "path"));
  GB_TRY(const std::string path, resolve_links(asked));
  GB_TRY(const int64_t mode, int_field(op.fields, "mode", 0644, 0, 07777));
  GB_TRY(const bool parents, bool_field(op.fields, "parents", false));
  GB_TRY(const bool exclusive, bool_field(op.fields, "exclusive", false));
  GB_TRY(const bool append, bool_field(op.fields, "append", false));
  if (exclusive && (append || path != asked)) {
    return append ? fail(Code::kInvalidArgument, "exclusive and append exclude each other")
                  : fail(Code::kFileExists, asked + ": is a symbolic link");
  }
  if (parents) {
    GB_TRYV(make_parents(path));
  }
  FileWriter writer(path, op.user);
  GB_TRYV(append ? writer.open_append(static_cast<mode_t>(mode))
                 : writer.open_new(static_cast<mode_t>(mode), exclusive));
  GB_TRYV(op.request.respond({}));
  GB_TRYV(take_data(op, writer));
  GB_TRYV(writer.commit());
  GB_TRY(auto entry, entry_at(op.users, path, true));
  return op.request.respond({{"entry", std::move(entry)}});
}

}  // namespace glovebox::agent
