// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/file_writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/random.h"
#include "programs/agent/entry.h"

namespace glovebox::agent {
namespace {

constexpr std::string_view kReplacing = ".over.tmp";
constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE

Result<void> must_be_regular(const std::string& path, const struct stat& st) {
  if (S_ISDIR(st.st_mode)) return fail(Code::kIsADirectory, path + ": is a directory");
  if (!S_ISREG(st.st_mode)) return fail(Code::kInvalidArgument, path + ": is not a regular file");
  return {};
}

}  // namespace

bool is_own_temporary(std::string_view name) {
  return name.starts_with(".glovebox-") && (name.ends_with(".tmp") || name.ends_with(".del"));
}

bool replaces_a_file(std::string_view temporary) {
  return temporary.ends_with(kReplacing);
}

FileWriter::~FileWriter() {
  if (committed_) return;
  if (!temporary_.empty() && ::unlinkat(directory_.get(), temporary_.c_str(), 0) != 0) {
    const AsRootForAMoment root;  // it has got its owner already, and the directory is sticky
    ::unlinkat(directory_.get(), temporary_.c_str(), 0);
  }
  if (!appending_ || !file_) return;
  struct stat st;
  const bool only_ours =
      ::fstat(file_.get(), &st) == 0 && static_cast<uint64_t>(st.st_size) == old_size_ + written_;
  if (only_ours && created_) {
    ::unlink(path_.c_str());
  } else if (only_ours) {
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(old_size_));
  }
}

// Opening it for writing is the test whether the user may replace its content; a rename alone would
// not ask.
Result<void> FileWriter::check_existing(bool exclusive) {
  const std::string name = base_name(path_);
  exists_ = ::fstatat(directory_.get(), name.c_str(), &existing_, AT_SYMLINK_NOFOLLOW) == 0;
  if (!exists_) {
    if (path_.ends_with('/')) return fail(Code::kInvalidPath, path_ + ": ends with a slash");
    return errno == ENOENT ? Result<void>() : fail_errno(path_);
  }
  if (exclusive) return fail(Code::kFileExists, path_ + ": exists");
  GB_TRYV(must_be_regular(path_, existing_));
  UniqueFd writable(::openat(directory_.get(), name.c_str(),
                             O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!writable && errno != ETXTBSY) return fail_errno(path_);
  return {};
}

Result<void> FileWriter::open_new(mode_t mode, bool exclusive) {
  exclusive_ = exclusive;
  directory_.reset(::open(parent_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A directory may be writable without being readable.
  if (!directory_)
    directory_.reset(::open(parent_of(path_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory_) return fail_errno(parent_of(path_));
  GB_TRYV(check_existing(exclusive));
  mode_ = exists_ ? existing_.st_mode & 07777 : mode;
  std::string temporary = ".glovebox-" + random_name(12);
  temporary += exists_ ? kReplacing : ".tmp";
  file_.reset(::openat(directory_.get(), temporary.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_) return fail_errno(path_);
  temporary_ = std::move(temporary);
  return {};
}

Result<void> FileWriter::open_append(mode_t mode) {
  appending_ = true;
  constexpr int kFlags = O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  file_.reset(::open(path_.c_str(), kFlags));
  if (!file_ && errno == ENOENT) {
    file_.reset(::open(path_.c_str(), kFlags | O_CREAT | O_EXCL, mode));
    created_ = static_cast<bool>(file_);
  }
  struct stat st;
  if (!file_ || ::fstat(file_.get(), &st) != 0) {
    const int error = errno;
    if (error == ENXIO) return fail(Code::kInvalidArgument, path_ + ": is not a regular file");
    return fail_errno(path_, error);
  }
  old_size_ = static_cast<uint64_t>(st.st_size);
  auto regular = must_be_regular(path_, st);
  if (!regular) file_.reset();
  return regular;
}

Result<void> FileWriter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(path_);
    written_ += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<void> FileWriter::set_attributes() {
  mode_t mode = mode_;
  if (exists_ && (existing_.st_uid != user_.uid || existing_.st_gid != user_.gid)) {
    // The user may write the file but not give one away; keeping the owner is the agent's doing.
    const AsRootForAMoment root;
    if (::fchown(file_.get(), existing_.st_uid, existing_.st_gid) != 0) return fail_errno(path_);
    if (user_.uid != 0) mode &= 01777;  // as the kernel does when another user writes
    if (::fchmod(file_.get(), mode) != 0) return fail_errno(path_);
    return {};
  }
  if (::fchmod(file_.get(), mode) != 0) return fail_errno(path_);
  return {};
}

Result<void> FileWriter::put_in_place() {
  const std::string name = base_name(path_);
  const int at = directory_.get();
  if (!exclusive_) {
    if (::renameat(at, temporary_.c_str(), at, name.c_str()) == 0) return {};
    return errno == EPERM || errno == EACCES ? replace_foreign() : fail_errno(path_);
  }
  if (::syscall(SYS_renameat2, at, temporary_.c_str(), at, name.c_str(), kNoReplace) == 0)
    return {};
  if (errno != EINVAL && errno != ENOSYS) return fail_errno(path_);
  // A file system without it: a hard link never replaces either.
  if (::linkat(at, temporary_.c_str(), at, name.c_str(), 0) != 0) return fail_errno(path_);
  ::unlinkat(at, temporary_.c_str(), 0);
  return {};
}

// In a sticky directory (/tmp) nobody may rename over another user's file, though writing into it
// was allowed, which check_existing() has asked. If it still is that file, the outcome is the same.
Result<void> FileWriter::replace_foreign() {
  const int error = errno;
  const std::string name = base_name(path_);
  struct stat now;
  const bool same = exists_ && existing_.st_uid != user_.uid &&
                    ::fstatat(directory_.get(), name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 &&
                    now.st_ino == existing_.st_ino && now.st_dev == existing_.st_dev;
  if (!same) return fail_errno(path_, error);
  const AsRootForAMoment root;
  if (::renameat(directory_.get(), temporary_.c_str(), directory_.get(), name.c_str()) != 0)
    return fail_errno(path_);
  return {};
}

Result<void> FileWriter::commit() {
  if (!appending_) {
    GB_TRYV(set_attributes());
    GB_TRYV(put_in_place());
  }
  committed_ = true;
  file_.reset();  // before the caller hears of it: a program that is open for writing cannot be
                  // started (ETXTBSY)
  return {};
}

}  // namespace glovebox::agent
