// SPDX-License-Identifier: Apache-2.0
#include "image/layer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/unique_fd.h"
#include "image/digest.h"
#include "image/files.h"
#include "image/jail.h"

namespace glovebox::image {
namespace {

constexpr std::string_view kWhiteout = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
constexpr uint64_t kRatioFrom = 64 << 20;  // small layers of zeros are harmless and common
constexpr size_t kMaxComponent = 255;
constexpr size_t kMaxComponents = 256;  // walking a path costs its length at every step
constexpr size_t kMaxXattr = 65536;
constexpr uint64_t kProgressEvery = 512;

// The decompressed bytes of a layer: hashed, counted, and handed to the tar reader piece by piece.
class LayerStream {
 public:
  explicit LayerStream(std::function<Result<void>(uint64_t)> charge) : charge_(std::move(charge)) {}

  Result<void> open(int fd) {
    raw_.reset(::archive_read_new());
    ::archive_read_support_filter_gzip(raw_.get());
    ::archive_read_support_filter_zstd(raw_.get());
    ::archive_read_support_format_raw(raw_.get());
    ::archive_read_support_format_empty(raw_.get());
    struct archive_entry* entry = nullptr;
    if (::archive_read_open_fd(raw_.get(), fd, 1 << 18) != ARCHIVE_OK)
      return archive_error(raw_.get(), "cannot read a layer");
    const int rc = ::archive_read_next_header(raw_.get(), &entry);
    is_at_end_ = rc == ARCHIVE_EOF;
    if (!is_at_end_ && rc != ARCHIVE_OK) return archive_error(raw_.get(), "cannot read a layer");
    return {};
  }

  Result<std::string_view> next() {
    if (is_at_end_) return std::string_view();
    const la_ssize_t n = ::archive_read_data(raw_.get(), buffer_.data(), buffer_.size());
    if (n < 0) return archive_error(raw_.get(), "a layer is damaged");
    is_at_end_ = n == 0;
    const std::string_view bytes(buffer_.data(), static_cast<size_t>(n));
    hash_.update(bytes);
    GB_TRYV(charge_(bytes.size()));
    return bytes;
  }

  // What tar leaves unread belongs to the digest too.
  Result<std::string> drain_and_digest() {
    for (;;) {
      GB_TRY(const auto bytes, next());
      if (bytes.empty()) return hash_.hex_digest();
    }
  }

  // The error behind a failed read of the tar reader.
  Result<void> status = {};

 private:
  std::function<Result<void>(uint64_t)> charge_;
  ArchivePtr raw_;
  Sha256 hash_;
  bool is_at_end_ = false;
  std::vector<char> buffer_ = std::vector<char>(1 << 18);
};

la_ssize_t read_stream(struct archive* a, void* client, const void** bytes) {
  auto& stream = *static_cast<LayerStream*>(client);
  auto piece = stream.next();
  if (!piece) {
    stream.status = fail(piece.error());
    ::archive_set_error(a, EIO, "%s", "stream");
    return -1;
  }
  *bytes = piece->data();
  return static_cast<la_ssize_t>(piece->size());
}

bool is_directory(const std::string& path) {
  struct stat st;
  return ::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

// A failing call on a name out of the archive.
tl::unexpected<Error> cannot(const char* what, const std::string& path) {
  const int error = errno;
  if (error == ENAMETOOLONG) {
    return fail(Code::kPayloadTooLarge, std::string("a name in the archive is too long to ") + what,
                {{"limit", "path_bytes"}});
  }
  if (error == ENOSPC || error == EDQUOT)
    return fail(Code::kDiskFull, "the disk is full while the archive is unpacked");
  if (error == EFBIG) {
    return fail(Code::kPayloadTooLarge, "a file in the archive is too large",
                {{"limit", "unpacked_bytes"}});
  }
  return fail(Code::kCorrupt, std::string("cannot ") + what + " " +
                                  utf8_lossy(path.substr(0, 200)) + ": " + errno_text(error));
}

}  // namespace

Result<std::string> clean_path(const std::string& name, size_t max_bytes) {
  if (name.size() > max_bytes) {
    return fail(Code::kPayloadTooLarge,
                "a name in the archive is longer than " + std::to_string(max_bytes) + " bytes",
                {{"limit", "path_bytes"}});
  }
  std::string out;
  size_t depth = 0;
  for (const auto& part : split(name, '/')) {
    if (part.empty() || part == ".") continue;
    if (part.size() > kMaxComponent) {
      return fail(Code::kPayloadTooLarge, "a name in the archive has a part longer than 255 bytes",
                  {{"limit", "path_bytes"}});
    }
    if (part == "..")
      return fail(Code::kCorrupt,
                  "a name in the archive leaves it: " + utf8_lossy(name.substr(0, 200)));
    if (++depth > kMaxComponents) {
      return fail(Code::kPayloadTooLarge, "a name in the archive is too deep",
                  {{"limit", "path_bytes"}});
    }
    out += (out.empty() ? "" : "/") + part;
  }
  return out;
}

Result<void> LayerWriter::charge(uint64_t bytes) {
  use_.unpacked_bytes += bytes;
  layer_bytes_ += bytes;
  if (use_.unpacked_bytes > limits_.unpacked_bytes) {
    return fail(Code::kPayloadTooLarge,
                "the archive unpacks to more than " + human_bytes(limits_.unpacked_bytes),
                {{"limit", "unpacked_bytes"}});
  }
  if (layer_bytes_ > kRatioFrom && layer_bytes_ / limits_.ratio > stored_bytes_) {
    return fail(Code::kPayloadTooLarge,
                "a layer unpacks to more than " + std::to_string(limits_.ratio) + " times its size",
                {{"limit", "ratio"}});
  }
  return {};
}

Result<void> LayerWriter::apply(const LayerSource& source) {
  const std::string name = source.number > 0 ? "layer " + std::to_string(source.number) : "the archive";
  is_layer_ = source.number > 0;
  stored_bytes_ = source.stored_bytes;
  layer_bytes_ = 0;
  made_.clear();
  directory_times_.clear();
  LayerStream stream([this](uint64_t n) { return charge(n); });
  GB_TRYV(stream.open(source.fd));
  const ArchivePtr tar(::archive_read_new());
  ::archive_read_support_format_tar(tar.get());
  ::archive_read_support_format_empty(tar.get());
  const auto failure = [&](const std::string& what) -> tl::unexpected<Error> {
    if (!stream.status) return fail(stream.status.error());
    return archive_error(tar.get(), name + what);
  };
  if (::archive_read_open(tar.get(), &stream, nullptr, read_stream, nullptr) != ARCHIVE_OK)
    return failure(" is not a tar file");
  for (;;) {
    struct archive_entry* e = nullptr;
    const int rc = ::archive_read_next_header(tar.get(), &e);
    if (rc == ARCHIVE_EOF) break;
    if (rc < ARCHIVE_WARN) return failure(" is damaged");
    auto done = entry(tar.get(), e);
    if (!stream.status) return fail(stream.status.error());
    GB_TRYV(done);
    if (use_.entries % kProgressEvery == 0) on_progress_();
  }
  GB_TRY(const auto digest, stream.drain_and_digest());
  if (!source.diff_id.empty() && digest != source.diff_id) {
    return fail(Code::kCorrupt, name + " has other content than the image's configuration says",
                {{"digest", source.diff_id}});
  }
  apply_directory_times();
  return {};
}

Result<void> LayerWriter::entry(struct archive* a, struct archive_entry* e) {
  if (++use_.entries > limits_.entries) {
    return fail(Code::kPayloadTooLarge,
                "the archive has more than " + std::to_string(limits_.entries) + " entries",
                {{"limit", "entries"}});
  }
  GB_TRY(const auto clean,
         clean_path(entry_text(::archive_entry_pathname(e), ::archive_entry_pathname_utf8(e)),
                    limits_.path_bytes));
  const auto type = ::archive_entry_filetype(e);
  if (clean.empty()) return type == AE_IFDIR ? attributes(e, "/") : Result<void>();
  const std::string path = "/" + clean, base = path.substr(path.rfind('/') + 1);
  if (is_layer_ && base.rfind(kWhiteout, 0) == 0) return whiteout(parent_of(path), base);
  const std::string hard =
      entry_text(::archive_entry_hardlink(e), ::archive_entry_hardlink_utf8(e));
  if (hard.empty() && (type == AE_IFCHR || type == AE_IFBLK || type == AE_IFSOCK)) return {};

  GB_TRYV(make_parents(path));
  if (type == AE_IFDIR && hard.empty()) {
    GB_TRYV(make_directory(path));
  } else {
    if (!hard.empty()) {
      GB_TRY(const auto target, clean_path(hard, limits_.path_bytes));
      return make_link(path, "/" + target);
    }
    GB_TRYV(remove_tree(path));
    if (type == AE_IFLNK) {
      const std::string target =
          entry_text(::archive_entry_symlink(e), ::archive_entry_symlink_utf8(e));
      if (target.empty()) return fail(Code::kCorrupt, "the archive has a symbolic link to nowhere");
      if (::symlink(target.c_str(), path.c_str()) != 0) return cannot("make link", path);
    } else if (type == AE_IFIFO) {
      if (::mkfifo(path.c_str(), 0600) != 0) return cannot("make fifo", path);
    } else if (type == AE_IFREG) {
      GB_TRYV(make_file(a, e, path));
    } else {
      return {};
    }
  }
  remember(path);
  return attributes(e, path);
}

void LayerWriter::remember(const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) == 0) made_.insert(st.st_ino);
}

Result<void> LayerWriter::make_parents(const std::string& path) {
  const std::string parent = parent_of(path);
  struct stat st;
  if (::stat(parent.c_str(), &st) ==
      0) {  // follows links, as container engines do: /lib/x with lib -> usr/lib
    if (S_ISDIR(st.st_mode)) return {};
    return fail(Code::kCorrupt, "the archive has files below " + utf8_lossy(parent.substr(0, 200)) +
                                    ", which is no directory");
  }
  if (errno != ENOENT) return cannot("reach", parent);
  GB_TRYV(make_parents(parent));
  if (::mkdir(parent.c_str(), 0755) != 0) return cannot("make directory", parent);
  remember(parent);
  return {};
}

Result<void> LayerWriter::make_directory(const std::string& path) {
  if (is_directory(path)) return {};
  GB_TRYV(remove_tree(path));
  if (::mkdir(path.c_str(), 0700) != 0) return cannot("make directory", path);
  return {};
}

Result<void> LayerWriter::make_link(const std::string& path, const std::string& target) {
  struct stat from, to;
  if (::lstat(target.c_str(), &from) != 0) return cannot("link to", target);
  if (S_ISDIR(from.st_mode))
    return fail(Code::kCorrupt, "the archive has a hard link to a directory");
  if (::lstat(path.c_str(), &to) == 0 && to.st_ino == from.st_ino && to.st_dev == from.st_dev)
    return {};  // to itself
  GB_TRYV(remove_tree(path));
  if (::linkat(AT_FDCWD, target.c_str(), AT_FDCWD, path.c_str(), 0) != 0)
    return cannot("link to", target);
  remember(path);
  return {};
}

Result<void> LayerWriter::make_file(struct archive* a, struct archive_entry* e,
                                    const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) return cannot("create", path);
  const int64_t size = ::archive_entry_size(e);
  if (size < 0) return fail(Code::kCorrupt, "the archive has a file of negative size");
  int64_t stored =
      0;  // counted with the stream; holes of sparse files are not, and cost as much to read
  for (;;) {
    const void* bytes = nullptr;
    size_t length = 0;
    la_int64_t offset = 0;
    const int rc = ::archive_read_data_block(a, &bytes, &length, &offset);
    if (rc == ARCHIVE_EOF) break;
    if (rc != ARCHIVE_OK)
      return archive_error(a, "the file " + utf8_lossy(path.substr(0, 200)) + " is damaged");
    if (offset < 0 || offset > size || static_cast<int64_t>(length) > size - offset) {
      return fail(Code::kCorrupt, "the archive has a file that is longer than it says");
    }
    for (size_t done = 0; done < length;) {
      const ssize_t n = ::pwrite(fd.get(), static_cast<const char*>(bytes) + done, length - done,
                                 offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return cannot("write", path);
      done += static_cast<size_t>(n);
    }
    stored += static_cast<int64_t>(length);
  }
  if (is_layer_ && stored < size) GB_TRYV(charge(static_cast<uint64_t>(size - stored)));
  if (::ftruncate(fd.get(), size) != 0) return cannot("size", path);
  return {};
}

// Owner, mode (set-id bits included), user.* attributes and times. Security attributes stay behind:
// file capabilities and labels of another machine are none of ours to grant.
Result<void> LayerWriter::attributes(struct archive_entry* e, const std::string& path) {
  const int64_t uid = ::archive_entry_uid(e), gid = ::archive_entry_gid(e);
  if (uid < 0 || uid >= kIdCount || gid < 0 || gid >= kIdCount) {
    return fail(Code::kUnsupported, "the archive has a file with a user or group id above 65535: " +
                                        utf8_lossy(path.substr(0, 200)));
  }
  if (::lchown(path.c_str(), static_cast<uid_t>(uid), static_cast<gid_t>(gid)) != 0)
    return cannot("own", path);
  const bool is_link = ::archive_entry_filetype(e) == AE_IFLNK;
  if (!is_link && ::chmod(path.c_str(), ::archive_entry_perm(e) & 07777) != 0)
    return cannot("set mode of", path);
  const char* name = nullptr;
  const void* value = nullptr;
  size_t size = 0;
  ::archive_entry_xattr_reset(e);
  while (!is_link && ::archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
    if (std::strncmp(name, "user.", 5) != 0 || size > kMaxXattr) continue;
    ::lsetxattr(path.c_str(), name, value, size,
                0);  // best effort: the file system below may have none
  }
  const timespec time = {static_cast<time_t>(::archive_entry_mtime(e)),
                         ::archive_entry_mtime_nsec(e)};
  const timespec times[2] = {time, time};
  if (::archive_entry_filetype(e) == AE_IFDIR) {
    directory_times_[path] = time;
  } else {
    ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
  return {};
}

void LayerWriter::apply_directory_times() {
  for (const auto& [path, time] : directory_times_) {
    const timespec times[2] = {time, time};
    if (is_directory(path)) ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
}

Result<void> LayerWriter::whiteout(const std::string& directory, const std::string& name) {
  if (name == kOpaque) return remove_lower(directory);
  const std::string target = name.substr(kWhiteout.size());
  if (target.rfind(kWhiteout, 0) == 0) return {};  // bookkeeping of aufs
  if (target.empty() || target == "." || target == "..")
    return fail(Code::kCorrupt, "the archive has a whiteout without a name");
  const std::string path = (directory == "/" ? "" : directory) + "/" + target;
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return {};
  if (made_.contains(st.st_ino)) return S_ISDIR(st.st_mode) ? remove_lower(path) : Result<void>();
  if (S_ISDIR(st.st_mode)) GB_TRYV(remove_lower(path));  // keeps what this layer put below it
  if (!is_directory(path)) return remove_tree(path);
  if (::rmdir(path.c_str()) != 0 && errno != ENOTEMPTY) return cannot("remove", path);
  return {};
}

// Removes everything below `directory` that is not of this layer.
Result<void> LayerWriter::remove_lower(const std::string& directory) {
  if (!is_directory(directory)) return {};
  GB_TRY(const auto names, directory_names(directory));
  for (const auto& name : names) {
    const std::string path = (directory == "/" ? "" : directory) + "/" + name;
    struct stat st;
    if (::lstat(path.c_str(), &st) != 0) continue;
    const bool is_made = made_.contains(st.st_ino);
    if (S_ISDIR(st.st_mode)) {
      GB_TRYV(remove_lower(path));
      if (!is_made && ::rmdir(path.c_str()) != 0 && errno != ENOTEMPTY)
        return cannot("remove", path);
    } else if (!is_made) {
      GB_TRYV(remove_tree(path));
    }
  }
  return {};
}

}  // namespace glovebox::image
