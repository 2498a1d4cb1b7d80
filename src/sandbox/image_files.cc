// SPDX-License-Identifier: Apache-2.0
#include "sandbox/image_files.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/text.h"
#include "channel/frame.h"
#include "sys/files.h"

namespace glovebox::sandbox {
namespace {

constexpr size_t kBlock = 1 << 20;
constexpr size_t kSumsKept = 65536;

// What a file's bytes cannot change without.
using Version = std::tuple<dev_t, ino_t, off_t, int64_t, int64_t, int64_t, int64_t>;

Version version_of(const struct stat& st) {
  return {st.st_dev, st.st_ino, st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
}

std::mutex sums_mutex;
std::map<Version, std::string>& known_sums() {
  static std::map<Version, std::string> sums;
  return sums;
}

void remember(const Version& version, const std::string& sum) {
  const std::lock_guard lock(sums_mutex);
  if (known_sums().size() >= kSumsKept) known_sums().clear();
  known_sums()[version] = sum;
}

using Digest = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

Result<void> read_range(int fd, off_t at, off_t end, const std::string& path, const Digest& context) {
  std::string block(kBlock, '\0');
  while (at < end) {
    const ssize_t n = ::pread(fd, block.data(), static_cast<size_t>(std::min<off_t>(kBlock, end - at)), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(path);
    if (n == 0) return fail(Code::kCorrupt, path + ": became shorter");
    EVP_DigestUpdate(context.get(), block.data(), static_cast<size_t>(n));
    at += n;
  }
  return {};
}

// SHA-256 of the bytes. A disk's image is mostly holes, so that of a file with holes is of each run of data behind its place and length
// (two times 8 bytes, little-endian): a terabyte of nothing takes no time.
Result<std::string> read_sum(int fd, off_t size, const std::string& path) {
  const Digest context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return fail(Code::kInternal, "SHA-256 is not there");
  for (off_t at = 0; at < size;) {
    const off_t begin = ::lseek(fd, at, SEEK_DATA);
    if (begin < 0 && errno != ENXIO) return fail_errno(path);
    const off_t end = begin < 0 ? size : std::min(::lseek(fd, begin, SEEK_HOLE), size);
    if (end < 0) return fail_errno(path);
    const bool is_whole = begin == 0 && end == size;
    std::string place;
    channel::append_u64(place, static_cast<uint64_t>(begin < 0 ? size : begin));
    channel::append_u64(place, static_cast<uint64_t>(begin < 0 ? 0 : end - begin));
    if (!is_whole) EVP_DigestUpdate(context.get(), place.data(), place.size());
    if (begin >= 0) GB_TRYV(read_range(fd, begin, end, path, context));
    at = end;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned digest_bytes = 0;
  EVP_DigestFinal_ex(context.get(), digest, &digest_bytes);
  return hex(std::string_view(reinterpret_cast<const char*>(digest), digest_bytes));
}

struct Part {
  UniqueFd fd;
  struct stat st {};
};

Result<Part> open_part(const std::string& path) {
  Part part;
  GB_TRY(part.fd, sys::open_fd(path, O_RDONLY | O_NOFOLLOW));
  if (::fstat(part.fd.get(), &part.st) < 0) return fail_errno(path);
  if (!S_ISREG(part.st.st_mode)) return fail(Code::kCorrupt, path + ": is not a file");
  return part;
}

Result<void> check_part(const std::string& path, const runtime::SnapshotPart& wanted, Reading reading) {
  const auto differs = [&] { return fail(Code::kCorrupt, "the snapshot is damaged: " + wanted.name + " has changed", {{"part", wanted.name}}); };
  auto part = open_part(path);
  if (!part && part.error().code != Code::kCorrupt) return fail(Code::kCorrupt, "the snapshot is damaged: " + wanted.name + " cannot be read", {{"part", wanted.name}});
  if (!part || static_cast<uint64_t>(part->st.st_size) != wanted.bytes) return differs();
  if (wanted.sha256.empty()) return {};
  const Version version = version_of(part->st);
  if (reading == Reading::kIfChanged) {
    const std::lock_guard lock(sums_mutex);
    const auto known = known_sums().find(version);
    if (known != known_sums().end() && known->second == wanted.sha256) return {};
  }
  GB_TRY(const auto sum, read_sum(part->fd.get(), part->st.st_size, path));
  if (sum != wanted.sha256) return differs();
  remember(version, sum);
  return {};
}

}  // namespace

Result<void> make_image_directory(const std::string& directory) {
  GB_TRYV(sys::remove_tree(directory));
  return sys::make_directories(directory, 0700);
}

Result<std::vector<runtime::SnapshotPart>> seal_image(const std::string& directory) {
  std::vector<runtime::SnapshotPart> parts;
  auto names = sys::list_directory(directory);
  std::sort(names.begin(), names.end());
  for (const auto& name : names) {
    const std::string path = directory + "/" + name;
    GB_TRY(auto part, open_part(path));
    if (::fsync(part.fd.get()) < 0) return fail_errno(path);  // before: it settles what is a hole
    GB_TRY(auto sum, read_sum(part.fd.get(), part.st.st_size, path));
    if (::fstat(part.fd.get(), &part.st) < 0) return fail_errno(path);
    remember(version_of(part.st), sum);
    parts.push_back({name, static_cast<uint64_t>(part.st.st_size), std::move(sum)});
  }
  GB_TRY(const auto top, sys::open_fd(directory, O_RDONLY | O_DIRECTORY));
  if (::fsync(top.get()) < 0) return fail_errno(directory);
  return parts;
}

Result<void> check_image(const std::string& directory, const std::vector<runtime::SnapshotPart>& parts, Reading reading) {
  if (parts.empty()) return fail(Code::kCorrupt, "the snapshot is damaged: it has no parts");
  for (const auto& part : parts) GB_TRYV(check_part(directory + "/" + part.name, part, reading));
  return {};
}

Result<void> link_image(const std::string& from, const std::string& to) {
  for (const auto& name : sys::list_directory(from)) {
    if (::link((from + "/" + name).c_str(), (to + "/" + name).c_str()) == 0) continue;
    GB_TRYV(sys::copy_sparse(from + "/" + name, to + "/" + name));
  }
  return {};
}

Result<void> remove_image(const std::string& directory) { return sys::remove_tree(directory); }

uint64_t disk_bytes(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& name : sys::list_directory(directory)) {
    struct stat st {};
    if (::stat((directory + "/" + name).c_str(), &st) == 0) bytes += static_cast<uint64_t>(st.st_blocks) * 512;
  }
  return bytes;
}

}  // namespace glovebox::sandbox
