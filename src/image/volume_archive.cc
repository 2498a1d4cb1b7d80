// SPDX-License-Identifier: Apache-2.0
// The helper's half of exporting and importing volumes. Names, links, sizes and attributes in a
// volume or an archive are hostile: both are read in a jail whose root is the volume.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"
#include "image/archive.h"
#include "image/helper_modes.h"
#include "image/jail.h"
#include "image/layer.h"
#include "sys/ext4.h"
#include "sys/mounts.h"
#include "sys/userns.h"

namespace glovebox::image {
namespace {

constexpr int kStream = 3;
constexpr size_t kMaxDepth = 200;  // a descriptor a level
constexpr size_t kMaxExtents = 10'000;
constexpr size_t kMaxXattrNames = 64 << 10, kMaxXattr = 64 << 10;
constexpr size_t kBlock = 1 << 20;

// The owners that a sandbox sees, in the jail's user namespace.
Result<UniqueFd> shifted_mount(const std::string& disk, bool read_only) {
  GB_TRY(auto mount, sys::mount_ext4(disk, read_only));
  GB_TRY(const auto users, sys::make_user_namespace(kShiftedIds, kIdCount));
  GB_TRYV(sys::map_owners(mount, users));
  return mount;
}

ImportLimits limits_for(uint64_t disk_bytes) {
  ImportLimits limits;
  limits.unpacked_bytes = disk_bytes + (1ull << 30);  // headers and padding count, too
  limits.ratio = UINT64_MAX;                          // its own disk is all that it can fill
  limits.archive_bytes = 2 * disk_bytes + (1ull << 30);
  return limits;
}

struct FreeWriter {
  void operator()(struct archive* a) const { ::archive_write_free(a); }
};
struct FreeEntry {
  void operator()(struct archive_entry* e) const { ::archive_entry_free(e); }
};
struct CloseDirectory {
  void operator()(DIR* d) const { ::closedir(d); }
};

// Walks the tree below the working directory by descriptors, one level at a time: paths may be
// longer than the kernel takes.
class Packer {
 public:
  explicit Packer(int out) : tar_(::archive_write_new()), zeros_(kBlock) {
    ::archive_write_set_format_pax_restricted(tar_.get());
    ::archive_write_set_bytes_in_last_block(tar_.get(), 1);
    ::archive_write_open_fd(tar_.get(), out);
  }

  Result<void> pack() {
    UniqueFd root(::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root) return fail_errno("open the volume");
    struct stat st{};
    if (::fstat(root.get(), &st) != 0) return fail_errno("look at the volume");
    GB_TRYV(add(root.get(), ".", "./", st));
    GB_TRYV(directory(std::move(root), "./", 0));
    if (::archive_write_close(tar_.get()) != ARCHIVE_OK) return failure();
    return {};
  }

 private:
  tl::unexpected<Error> failure() {
    const int error = ::archive_errno(tar_.get());
    if (error == ENOSPC) return fail(Code::kDiskFull, "the host has no room for the archive");
    if (error == EFBIG)
      return fail(Code::kPayloadTooLarge, "the archive of the volume is larger than can be made",
                  {{"limit", "archive_bytes"}});
    return archive_error(tar_.get(), "cannot write the archive");
  }

  Result<void> directory(UniqueFd fd, const std::string& path, size_t depth) {
    if (depth > kMaxDepth)
      return fail(Code::kUnsupported,
                  "the volume has directories deeper than " + std::to_string(kMaxDepth));
    const std::unique_ptr<DIR, CloseDirectory> listing(::fdopendir(fd.get()));
    if (!listing) return fail_errno("list a directory of the volume");
    const int here = fd.release();  // the listing's now
    for (errno = 0; const dirent* found = ::readdir(listing.get()); errno = 0) {
      const std::string name = found->d_name;
      if (name == "." || name == "..") continue;
      GB_TRYV(child(here, name, path + name, depth));
    }
    if (errno != 0) return fail_errno("list a directory of the volume");
    return {};
  }

  Result<void> child(int parent, const std::string& name, const std::string& path, size_t depth) {
    struct stat st{};
    if (::fstatat(parent, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno("look at a file of the volume");
    const bool is_kept =
        S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode) || S_ISFIFO(st.st_mode);
    if (!is_kept) return {};
    if (!S_ISDIR(st.st_mode)) return add(parent, name, path, st);
    GB_TRYV(add(parent, name, path + "/", st));
    UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno("open a directory of the volume");
    return directory(std::move(fd), path + "/", depth + 1);
  }

  Result<void> add(int parent, const std::string& name, const std::string& path,
                   const struct stat& st) {
    const std::unique_ptr<struct archive_entry, FreeEntry> entry(::archive_entry_new());
    ::archive_entry_copy_stat(entry.get(), &st);
    ::archive_entry_copy_pathname(entry.get(), path.c_str());
    ::archive_entry_set_size(entry.get(), 0);
    if (S_ISLNK(st.st_mode)) GB_TRYV(add_target(entry.get(), parent, name));
    if (S_ISREG(st.st_mode)) return add_file(entry.get(), parent, name, path, st);
    if (S_ISDIR(st.st_mode)) {
      const UniqueFd fd(
          ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!fd) return fail_errno("open a directory of the volume");
      add_attributes(entry.get(), fd.get());
    }
    return write_header(entry.get());
  }

  Result<void> write_header(struct archive_entry* entry) {
    if (::archive_write_header(tar_.get(), entry) < ARCHIVE_WARN)
      return failure();  // a warning: a name that is not UTF-8
    return {};
  }

  Result<void> add_target(struct archive_entry* entry, int parent, const std::string& name) {
    std::string target(4096, '\0');
    const ssize_t n = ::readlinkat(parent, name.c_str(), target.data(), target.size());
    if (n < 0) return fail_errno("read a link of the volume");
    target.resize(static_cast<size_t>(n));
    ::archive_entry_copy_symlink(entry, target.c_str());
    return {};
  }

  // One file under two names goes once; the other name is a link to the first.
  Result<void> add_file(struct archive_entry* entry, int parent, const std::string& name,
                        const std::string& path, const struct stat& st) {
    if (st.st_nlink > 1) {
      const auto [first, is_new] = linked_.try_emplace(st.st_ino, path);
      if (!is_new) {
        ::archive_entry_copy_hardlink(entry, first->second.c_str());
        return write_header(entry);
      }
    }
    const UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno("open a file of the volume");
    ::archive_entry_set_size(entry, st.st_size);
    add_attributes(entry, fd.get());
    const auto extents = data_of(fd.get(), st.st_size);
    const bool is_sparse =
        extents.size() <= kMaxExtents &&
        !(extents.size() == 1 && extents[0] == std::pair<off_t, off_t>(0, st.st_size));
    if (is_sparse && st.st_size > 0) {
      for (const auto& [begin, end] : extents)
        ::archive_entry_sparse_add_entry(entry, begin, end - begin);
      if (extents.empty()) ::archive_entry_sparse_add_entry(entry, st.st_size, 0);
    }
    GB_TRYV(write_header(entry));
    return write_data(fd.get(), st.st_size, extents);
  }

  // Where the file holds data, [begin, end); the rest reads as zeros. With more than kMaxExtents:
  // all of it.
  static std::vector<std::pair<off_t, off_t>> data_of(int fd, off_t size) {
    std::vector<std::pair<off_t, off_t>> out;
    for (off_t end = 0; end < size && out.size() <= kMaxExtents;) {
      const off_t begin = ::lseek(fd, end, SEEK_DATA);
      if (begin < 0) break;
      end = ::lseek(fd, begin, SEEK_HOLE);
      if (end < 0) break;
      out.emplace_back(begin, std::min(end, size));
    }
    if (out.size() > kMaxExtents) return {{0, size}};
    return out;
  }

  // The writer wants every byte and drops those of the holes.
  Result<void> write_data(int fd, off_t size, const std::vector<std::pair<off_t, off_t>>& extents) {
    off_t at = 0;
    for (const auto& [begin, end] : extents) {
      GB_TRYV(write_zeros(begin - at));
      std::vector<char> block(std::min<size_t>(kBlock, static_cast<size_t>(end - begin)));
      for (at = begin; at < end;) {
        const ssize_t n = ::pread(
            fd, block.data(), std::min<size_t>(block.size(), static_cast<size_t>(end - at)), at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("read a file of the volume", n < 0 ? errno : EIO);
        if (::archive_write_data(tar_.get(), block.data(), static_cast<size_t>(n)) != n)
          return failure();
        at += n;
      }
    }
    return write_zeros(size - at);
  }

  Result<void> write_zeros(off_t count) {
    while (count > 0) {
      const auto n = static_cast<size_t>(std::min<off_t>(count, static_cast<off_t>(zeros_.size())));
      if (::archive_write_data(tar_.get(), zeros_.data(), n) != static_cast<la_ssize_t>(n))
        return failure();
      count -= static_cast<off_t>(n);
    }
    return {};
  }

  static void add_attributes(struct archive_entry* entry, int fd) {
    std::string names(kMaxXattrNames, '\0'), value(kMaxXattr, '\0');
    const ssize_t length = ::flistxattr(fd, names.data(), names.size());
    if (length <= 0) return;
    names.resize(static_cast<size_t>(length));
    for (const std::string& name : split(names, '\0')) {
      if (!name.starts_with("user.")) continue;
      const ssize_t n = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
      if (n >= 0)
        ::archive_entry_xattr_add_entry(entry, name.c_str(), value.data(), static_cast<size_t>(n));
    }
  }

  std::unique_ptr<struct archive, FreeWriter> tar_;
  std::vector<char> zeros_;
  std::map<ino_t, std::string> linked_;
};

}  // namespace

Result<void> helper_volume_pack(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2)
    return fail(Code::kInvalidArgument, "volume-pack wants a disk and its size");
  const auto limits = limits_for(static_cast<uint64_t>(parse_int(arguments[1]).value_or(0)));
  GB_TRY(const auto root, shifted_mount(arguments[0], true));
  return run_in_jail({.has_user_namespace = true}, [&]() -> Result<void> {
    GB_TRYV(confine(root, limits));
    return Packer(kStream).pack();
  });
}

Result<void> helper_volume_unpack(const std::vector<std::string>& arguments) {
  if (arguments.size() != 2)
    return fail(Code::kInvalidArgument, "volume-unpack wants a disk and its size");
  const auto limits = limits_for(static_cast<uint64_t>(parse_int(arguments[1]).value_or(0)));
  GB_TRY(const auto root, shifted_mount(arguments[0], false));
  return run_in_jail({.has_user_namespace = true}, [&]() -> Result<void> {
    ::umask(022);
    GB_TRYV(confine(root, limits));
    struct stat st{};
    if (::fstat(kStream, &st) != 0) return fail_errno("look at the archive");
    LayerUse use;
    LayerSource source{kStream, static_cast<uint64_t>(st.st_size), "", 0};
    return LayerWriter(limits, use, [] {}).apply(source);
  });
}

}  // namespace glovebox::image
