// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/local_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <memory>

#include "base/text.h"
#include "base/unique_fd.h"

namespace glovebox::cli {
namespace {

constexpr size_t kBlock = 64 << 10;

struct FreeReader {
  void operator()(archive* a) const { ::archive_read_free(a); }
};
struct FreeWriter {
  void operator()(archive* a) const { ::archive_write_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const { ::archive_entry_free(e); }
};
using Reader = std::unique_ptr<archive, FreeReader>;
using Writer = std::unique_ptr<archive, FreeWriter>;

std::string reason(archive* a) {
  const char* text = ::archive_error_string(a);
  return text == nullptr ? "unknown error" : text;
}

Error broken(archive* a, const std::string& what) {
  const int error = ::archive_errno(a);
  return {error > 0 ? errno_code(error) : Code::kCorrupt, what + ": " + reason(a), {}};
}

bool can_travel(archive_entry* entry) {
  const auto type = ::archive_entry_filetype(entry);
  return type == AE_IFREG || type == AE_IFDIR || type == AE_IFLNK;
}

// Does not follow a link and does not wait for a pipe that took the file's place since the walk saw
// it.
UniqueFd open_regular(archive_entry* entry) {
  return UniqueFd(
      ::open(::archive_entry_sourcepath(entry), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// Copies as many bytes as the header promised; the writer fills up with zeros when the file has
// shrunk.
Result<void> copy_content(int fd, int64_t size, archive* out) {
  std::string block(kBlock, '\0');
  while (size > 0) {
    const ssize_t got =
        ::read(fd, block.data(), std::min<size_t>(block.size(), static_cast<size_t>(size)));
    if (got < 0) return fail_errno("reading a file");
    if (got == 0) break;
    if (::archive_write_data(out, block.data(), static_cast<size_t>(got)) < 0)
      return fail(broken(out, "sending a file"));
    size -= got;
  }
  return {};
}

// One entry of the walk. Its name without `prefix`, the walk's root; the root itself is not sent.
Result<void> pack_entry(archive_entry* entry, size_t prefix, archive* out,
                        std::vector<std::string>& left_out) {
  const std::string path = ::archive_entry_pathname(entry);
  if (path.size() <= prefix) return {};
  const std::string name = path.substr(prefix);
  if (!can_travel(entry)) {
    left_out.push_back(name + ": neither file, directory nor link");
    return {};
  }
  UniqueFd content;
  if (::archive_entry_filetype(entry) == AE_IFREG) {
    content = open_regular(entry);
    if (!content) {
      left_out.push_back(name + ": " + errno_text(errno));
      return {};
    }
  }
  ::archive_entry_set_pathname(entry, name.c_str());
  ::archive_entry_sparse_clear(entry);
  ::archive_entry_set_uid(entry, 0);
  ::archive_entry_set_gid(entry, 0);
  ::archive_entry_set_uname(entry, "");
  ::archive_entry_set_gname(entry, "");
  if (::archive_write_header(out, entry) != ARCHIVE_OK) return fail(broken(out, name));
  if (!content) return {};
  return copy_content(content.get(), ::archive_entry_size(entry), out);
}

// Takes away what must not cross: owners, set-id bits. An empty string, or why the entry is left
// out.
std::string tame(archive_entry* entry, const std::string& name) {
  const char* hardlink = ::archive_entry_hardlink(entry);
  if (hardlink != nullptr && !is_safe_name(hardlink))
    return "hard link to a place outside: " + std::string(hardlink);
  if (hardlink == nullptr && !can_travel(entry)) return "neither file, directory nor link";
  if (hardlink == nullptr && ::archive_entry_filetype(entry) == AE_IFLNK) {
    const char* target = ::archive_entry_symlink(entry);
    if (target == nullptr || !link_stays_inside(name, target)) {
      return "link to a place outside: " + std::string(target == nullptr ? "?" : target);
    }
  }
  ::archive_entry_set_perm(entry, ::archive_entry_perm(entry) & 0777);
  ::archive_entry_acl_clear(entry);
  ::archive_entry_xattr_clear(entry);
  ::archive_entry_set_fflags(entry, 0, 0);
  return "";
}

Result<void> copy_blocks(archive* in, archive* out, const std::string& name) {
  while (true) {
    const void* block = nullptr;
    size_t size = 0;
    la_int64_t offset = 0;
    const int got = ::archive_read_data_block(in, &block, &size, &offset);
    if (got == ARCHIVE_EOF) return {};
    if (got < ARCHIVE_WARN) return fail(broken(in, name));
    if (::archive_write_data_block(out, block, size, offset) < ARCHIVE_WARN)
      return fail(broken(out, name));
  }
}

Result<void> unpack_entry(archive* in, archive_entry* entry, archive* out,
                          std::vector<std::string>& left_out) {
  const char* raw = ::archive_entry_pathname(entry);
  const std::string name = raw == nullptr ? "" : raw;
  if (!is_safe_name(name))
    return fail(Code::kInvalidPath,
                "the archive holds the name '" + name + "', which points outside");
  const std::string problem = tame(entry, name);
  if (!problem.empty()) {
    left_out.push_back(name + ": " + problem);
    return {};
  }
  const int wrote = ::archive_write_header(out, entry);
  if (wrote < ARCHIVE_WARN) {
    const bool is_refusal =
        ::archive_errno(out) <= 0;  // no system call failed: a symbolic link is in the way
    return is_refusal ? fail(Code::kInvalidPath, name + ": " + reason(out))
                      : fail(broken(out, name));
  }
  if (::archive_entry_size(entry) > 0) GB_TRYV(copy_blocks(in, out, name));
  return ::archive_write_finish_entry(out) < ARCHIVE_WARN ? fail(broken(out, name))
                                                          : Result<void>();
}

}  // namespace

bool is_safe_name(const std::string& name) {
  if (name.empty() || name[0] == '/' || name.find('\0') != std::string::npos) return false;
  for (const std::string& part : split(name, '/')) {
    if (part == "..") return false;
  }
  return true;
}

bool link_stays_inside(const std::string& name, const std::string& target) {
  if (target.empty() || target[0] == '/') return false;
  int depth = -1;  // of the directory that holds the link
  for (const std::string& part : split(name, '/')) depth += !part.empty() && part != "." ? 1 : 0;
  for (const std::string& part : split(target, '/')) {
    if (part == "..") --depth;
    if (!part.empty() && part != "." && part != "..") ++depth;
    if (depth < 0) return false;
  }
  return true;
}

Result<std::vector<std::string>> pack_directory(const std::string& directory, int fd) {
  std::string root = directory;
  while (root.size() > 1 && root.back() == '/') root.pop_back();
  const Reader disk(::archive_read_disk_new());
  const Writer out(::archive_write_new());
  ::archive_read_disk_set_symlink_physical(disk.get());
  ::archive_read_disk_set_behavior(
      disk.get(), ARCHIVE_READDISK_NO_ACL | ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_FFLAGS);
  ::archive_write_set_format_pax_restricted(out.get());
  ::archive_write_set_options(out.get(), "hdrcharset=BINARY");
  if (::archive_write_open_fd(out.get(), fd) != ARCHIVE_OK) return fail(broken(out.get(), root));
  if (::archive_read_disk_open(disk.get(), root.c_str()) != ARCHIVE_OK)
    return fail(broken(disk.get(), root));
  std::vector<std::string> left_out;
  const std::unique_ptr<archive_entry, FreeEntry> entry(::archive_entry_new());
  while (true) {
    const int got = ::archive_read_next_header2(disk.get(), entry.get());
    if (got == ARCHIVE_EOF) break;
    if (got < ARCHIVE_WARN) {
      if (got == ARCHIVE_FATAL) return fail(broken(disk.get(), root));
      left_out.push_back(reason(disk.get()));
      continue;
    }
    ::archive_read_disk_descend(disk.get());
    GB_TRYV(pack_entry(entry.get(), root == "/" ? 1 : root.size() + 1, out.get(), left_out));
    ::archive_entry_clear(entry.get());
  }
  if (::archive_write_close(out.get()) != ARCHIVE_OK) return fail(broken(out.get(), root));
  return left_out;
}

Result<std::vector<std::string>> unpack_into(const std::string& directory, int fd) {
  // libarchive extracts below the working directory. This gives the thread one of its own.
  if (::unshare(CLONE_FS) != 0) return fail_errno("a working directory for the extraction");
  if (::chdir(directory.c_str()) != 0) return fail_errno(directory);
  const Reader in(::archive_read_new());
  const Writer out(::archive_write_disk_new());
  ::archive_read_support_format_tar(in.get());
  ::archive_read_set_options(in.get(), "hdrcharset=BINARY");
  ::archive_write_disk_set_options(
      out.get(), ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                     ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
  if (::archive_read_open_fd(in.get(), fd, kBlock) != ARCHIVE_OK)
    return fail(broken(in.get(), "the archive"));
  std::vector<std::string> left_out;
  while (true) {
    archive_entry* entry = nullptr;
    const int got = ::archive_read_next_header(in.get(), &entry);
    if (got == ARCHIVE_EOF) break;
    if (got < ARCHIVE_WARN) return fail(broken(in.get(), "the archive"));
    GB_TRYV(unpack_entry(in.get(), entry, out.get(), left_out));
  }
  if (::archive_write_close(out.get()) < ARCHIVE_WARN) return fail(broken(out.get(), directory));
  return left_out;
}

}  // namespace glovebox::cli
