// SPDX-License-Identifier: Apache-2.0
#include "sys/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

namespace glovebox::sys {
namespace {

Result<void> write_all(int fd, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(what);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

// copy_file_range shares or copies inside the kernel; older kernels and some file systems refuse,
// then sendfile does it.
Result<void> copy_range(int in, int out, off_t begin, off_t end, const std::string& what) {
  off_t to = begin;
  while (begin < end) {
    auto length = static_cast<size_t>(end - begin);
    ssize_t n = ::copy_file_range(in, &begin, out, &to, length, 0);
    if (n < 0 && (errno == EXDEV || errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS)) {
      if (::lseek(out, to, SEEK_SET) < 0) return fail_errno(what);
      n = ::sendfile(out, in, &begin, length);
      if (n > 0) to += n;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(what);
    if (n == 0) return fail(Code::kCorrupt, what + ": shorter than expected");
  }
  return {};
}

}  // namespace

Result<UniqueFd> open_fd(const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd) return fail_errno(path);
  return fd;
}

Result<std::string> read_fd(int fd, size_t max_bytes) {
  std::string out;
  char buffer[16384];
  while (out.size() < max_bytes) {
    ssize_t n = ::read(fd, buffer, std::min(sizeof buffer, max_bytes - out.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read");
    if (n == 0) break;
    out.append(buffer, static_cast<size_t>(n));
  }
  return out;
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  GB_TRY(auto fd, open_fd(path, O_RDONLY));
  auto text = read_fd(fd.get(), max_bytes);
  if (!text) return fail(text.error().code, path + ": " + text.error().message);
  return text;
}

Result<void> write_file(const std::string& path, std::string_view text) {
  GB_TRY(auto fd, open_fd(path, O_WRONLY));
  if (::write(fd.get(), text.data(), text.size()) < 0) return fail_errno("write " + path);
  return {};
}

Result<void> put_file(const std::string& path, std::string_view content, mode_t mode) {
  GB_TRY(auto fd, open_fd(path, O_WRONLY | O_CREAT | O_TRUNC, mode));
  if (::fchmod(fd.get(), mode) < 0) return fail_errno(path);
  return write_all(fd.get(), content, path);
}

bool exists(const std::string& path) {
  struct stat st{};
  return ::lstat(path.c_str(), &st) == 0;
}

Result<void> make_directory(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return {};
  return fail_errno("mkdir " + path);
}

Result<void> make_directories(const std::string& path, mode_t mode) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    GB_TRYV(make_directory(path.substr(0, slash), mode));
  }
  return make_directory(path, mode);
}

std::vector<std::string> list_directory(const std::string& path) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
      names.emplace_back(entry->d_name);
    }
  }
  ::closedir(dir);
  return names;
}

Result<void> remove_tree(const std::string& path, bool keep_top) {
  std::error_code error;
  if (!keep_top) {
    std::filesystem::remove_all(path, error);
    if (error && error.value() != ENOENT) return fail_errno("remove " + path, error.value());
    return {};
  }
  for (const auto& name : list_directory(path)) GB_TRYV(remove_tree(path + "/" + name));
  return {};
}

Result<void> copy_sparse(const std::string& from, const std::string& to) {
  GB_TRY(auto in, open_fd(from, O_RDONLY));
  GB_TRY(auto out, open_fd(to, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  struct stat st{};
  if (::fstat(in.get(), &st) < 0) return fail_errno(from);
  if (::ftruncate(out.get(), st.st_size) < 0) return fail_errno(to);
  off_t end = 0;
  while (end < st.st_size) {
    off_t begin = ::lseek(in.get(), end, SEEK_DATA);
    if (begin < 0 && errno == ENXIO) break;  // only a hole is left
    if (begin < 0) return fail_errno(from);
    end = ::lseek(in.get(), begin, SEEK_HOLE);
    if (end < 0) return fail_errno(from);
    GB_TRYV(copy_range(in.get(), out.get(), begin, end, to));
  }
  return {};
}

Result<UniqueFd> sealed_copy(const std::string& path, const std::string& name) {
  GB_TRY(auto in, open_fd(path, O_RDONLY));
  struct stat st{};
  if (::fstat(in.get(), &st) < 0) return fail_errno(path);
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(static_cast<int>(::syscall(SYS_memfd_create, name.c_str(), flags | MFD_EXEC)));
  if (!fd && errno == EINVAL) {  // before Linux 6.3
    fd.reset(static_cast<int>(::syscall(SYS_memfd_create, name.c_str(), flags)));
  }
  if (!fd) return fail_errno("memfd_create");
  off_t offset = 0;
  while (offset < st.st_size) {
    ssize_t n = ::sendfile(fd.get(), in.get(), &offset, static_cast<size_t>(st.st_size - offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("copy " + path);
    if (n == 0) return fail(Code::kCorrupt, path + ": shorter than expected");
  }
  if (::fchmod(fd.get(), 0555) < 0) return fail_errno("fchmod memfd");
  int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (::fcntl(fd.get(), F_ADD_SEALS, seals) < 0) return fail_errno("seal memfd");
  return fd;
}

std::string read_link(const std::string& path) {
  char buffer[4096];
  ssize_t n = ::readlink(path.c_str(), buffer, sizeof buffer);
  return n < 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
}

}  // namespace glovebox::sys
