// SPDX-License-Identifier: Apache-2.0
#include "image/spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/text.h"
#include "image/archive.h"
#include "image/digest.h"
#include "image/files.h"

namespace glovebox::image {
namespace {

constexpr size_t kMaxMembers = 20000;  // a layer is one or three members
constexpr size_t kMaxMemberName = 1024;
constexpr const char* kLayoutList = "layout";  // lines "FILE NAME"

tl::unexpected<Error> too_many_bytes(uint64_t limit) {
  return fail(Code::kPayloadTooLarge, "the archive is larger than " + human_bytes(limit),
              {{"limit", "archive_bytes"}});
}

Result<UniqueFd> create_in(int directory, const std::string& file) {
  UniqueFd fd(::openat(directory, file.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return fail_errno("create blob");
  return fd;
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// "a/b/../c" -> "a/c" for link targets of old archives; "" when it leaves the archive.
std::string resolve_link(const std::string& from_directory, const std::string& target) {
  std::vector<std::string> parts;
  for (const auto& part : split(from_directory + "/" + target, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (parts.empty()) {
      return {};
    } else {
      parts.pop_back();
    }
  }
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : "/") + part;
  return out;
}

Result<uint64_t> copy_file(const std::string& from, int directory, const std::string& to,
                           uint64_t max_bytes) {
  UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat st;
  if (!in || ::fstat(in.get(), &st) != 0) return fail_errno("open " + from);
  if (!S_ISREG(st.st_mode)) return fail(Code::kCorrupt, from + " is not a regular file");
  GB_TRY(const auto out, create_in(directory, to));
  std::vector<char> buffer(1 << 20);
  uint64_t total = 0;
  for (;;) {
    const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + from);
    if (n == 0) return total;
    total += static_cast<uint64_t>(n);
    if (total > max_bytes) return too_many_bytes(max_bytes);
    GB_TRYV(write_fd(out.get(), {buffer.data(), static_cast<size_t>(n)}, "blob"));
  }
}

}  // namespace

Result<void> Blobs::spool_archive(int archive_fd, const ImportLimits& limits) {
  const ArchivePtr a(::archive_read_new());
  ::archive_read_support_filter_gzip(a.get());
  ::archive_read_support_filter_zstd(a.get());
  ::archive_read_support_filter_xz(a.get());
  ::archive_read_support_format_tar(a.get());
  if (::archive_read_open_fd(a.get(), archive_fd, 1 << 18) != ARCHIVE_OK)
    return archive_error(a.get(), "cannot read the archive");
  for (size_t members = 0;; ++members) {
    struct archive_entry* entry = nullptr;
    const int rc = ::archive_read_next_header(a.get(), &entry);
    if (rc == ARCHIVE_EOF) return {};
    if (rc < ARCHIVE_WARN) return archive_error(a.get(), "the archive is damaged");
    if (members >= kMaxMembers)
      return fail(Code::kPayloadTooLarge, "the archive has too many members",
                  {{"limit", "members"}});
    GB_TRY(const auto name, clean_path(entry_text(::archive_entry_pathname(entry),
                                                  ::archive_entry_pathname_utf8(entry)),
                                       kMaxMemberName));
    const std::string soft = entry_text(::archive_entry_symlink(entry), nullptr),
                      hard = entry_text(::archive_entry_hardlink(entry), nullptr);
    if (!hard.empty()) {
      links_[name] = resolve_link("", hard);
    } else if (!soft.empty()) {
      links_[name] = resolve_link(directory_of(name), soft);
    } else if (::archive_entry_filetype(entry) == AE_IFREG) {
      GB_TRYV(add_member(a.get(), name, limits.archive_bytes));
    }
  }
}

Result<void> Blobs::add_member(struct archive* a, const std::string& name, uint64_t max_bytes) {
  Blob blob;
  blob.file = std::to_string(blobs_.size());
  if (blobs_.contains(name)) return fail(Code::kCorrupt, "the archive has two members of one name");
  GB_TRY(const auto fd, create_in(directory_, blob.file));
  Sha256 hash;
  std::vector<char> buffer(1 << 18);
  for (;;) {
    const la_ssize_t n = ::archive_read_data(a, buffer.data(), buffer.size());
    if (n < 0) return archive_error(a, "the archive is damaged");
    if (n == 0) break;
    const std::string_view bytes(buffer.data(), static_cast<size_t>(n));
    blob.size += bytes.size();
    total_ += bytes.size();
    if (total_ > max_bytes) return too_many_bytes(max_bytes);
    hash.update(bytes);
    GB_TRYV(write_fd(fd.get(), bytes, "blob"));
  }
  blob.sha256 = hash.hex_digest();
  blobs_[name] = std::move(blob);
  return {};
}

Result<void> copy_layout(const std::string& layout, int directory_fd, const ImportLimits& limits) {
  std::vector<std::string> names;
  for (const char* name : {"index.json", "oci-layout", "manifest.json"}) {
    if (path_exists(layout + "/" + name)) names.push_back(name);
  }
  GB_TRY(const auto blobs, directory_names(layout + "/blobs/sha256"));
  for (const auto& blob : blobs) {
    if (is_sha256_hex(blob)) names.push_back("blobs/sha256/" + blob);
  }
  if (names.empty()) return fail(Code::kCorrupt, layout + " is not an OCI image layout");
  if (names.size() > kMaxMembers)
    return fail(Code::kPayloadTooLarge, "the layout has too many blobs", {{"limit", "members"}});
  uint64_t left = limits.archive_bytes;
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    auto size = copy_file(layout + "/" + names[i], directory_fd, std::to_string(i), left);
    if (!size)
      return fail(size.error().code == Code::kPayloadTooLarge
                      ? too_many_bytes(limits.archive_bytes).value()
                      : size.error());
    left -= *size;
    list += std::to_string(i) + " " + names[i] + "\n";
  }
  GB_TRY(const auto fd, create_in(directory_fd, kLayoutList));
  return write_fd(fd.get(), list, kLayoutList);
}

Result<void> Blobs::adopt_layout() {
  UniqueFd list(::openat(directory_, kLayoutList, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!list) return fail_errno("open list of blobs");
  GB_TRY(const auto text, read_fd(list.get(), 4 << 20, "list of blobs"));
  for (const auto& line : split(text, '\n')) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    Blob blob{.file = line.substr(0, space)};
    GB_TRY(const auto fd, open(blob));
    struct stat st;
    if (::fstat(fd.get(), &st) != 0) return fail_errno("stat blob");
    blob.size = static_cast<uint64_t>(st.st_size);
    GB_TRY(blob.sha256, sha256_of_fd(fd.get(), "blob"));
    total_ += blob.size;
    blobs_[line.substr(space + 1)] = std::move(blob);
  }
  return {};
}

const Blob* Blobs::find(const std::string& name) const {
  std::string at = name;
  for (int hops = 0; hops < 8; ++hops) {
    if (const auto blob = blobs_.find(at); blob != blobs_.end()) return &blob->second;
    const auto link = links_.find(at);
    if (link == links_.end()) return nullptr;
    at = link->second;
  }
  return nullptr;
}

Result<const Blob*> Blobs::by_digest(const std::string& digest) const {
  if (digest.rfind("sha256:", 0) != 0 || !is_sha256_hex(std::string_view(digest).substr(7))) {
    return fail(Code::kUnsupported, "the image uses a digest that is not sha256");
  }
  const std::string wanted = digest.substr(7);
  const Blob* blob = find("blobs/sha256/" + wanted);
  if (blob == nullptr)
    return fail(Code::kCorrupt, "the archive lacks blob " + wanted, {{"digest", wanted}});
  if (blob->sha256 != wanted)
    return fail(Code::kCorrupt, "blob " + wanted + " has other content than its digest says",
                {{"digest", wanted}});
  return blob;
}

Result<UniqueFd> Blobs::open(const Blob& blob) const {
  UniqueFd fd(::openat(directory_, blob.file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno("open blob");
  return fd;
}

Result<std::string> Blobs::read(const Blob& blob, size_t max_bytes) const {
  GB_TRY(const auto fd, open(blob));
  return read_fd(fd.get(), max_bytes, "blob");
}

}  // namespace glovebox::image
