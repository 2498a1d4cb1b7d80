// SPDX-License-Identifier: Apache-2.0
#include "registry/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "sys/files.h"

namespace glovebox::registry {
namespace {

constexpr size_t kMaxRecordBytes = 128 << 20;
constexpr size_t kDigestBytes = 64;  // of a record: its checksum in hex, a line feed, the content

std::string file_name(const std::string& sha256) { return "files/" + sha256; }
std::string record_name(std::string_view key) { return "records/" + sha256_hex(key); }

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write to the cache");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

Cache::Writer::Writer(Cache& cache, std::string path, UniqueFd fd, Integrity expected)
    : cache_(cache), path_(std::move(path)), fd_(std::move(fd)), expected_(std::move(expected)) {
  if (expected_.is_given() && expected_.kind != DigestKind::kSha256) other_.emplace(expected_.kind);
}

Cache::Writer::~Writer() {
  if (path_.empty()) return;  // committed
  ::unlink(path_.c_str());
  cache_.release(size_);
}

Result<void> Cache::Writer::write(std::string_view bytes) {
  GB_TRYV(cache_.reserve(bytes.size()));
  size_ += bytes.size();
  sha256_.update(bytes);
  if (other_) other_->update(bytes);
  return write_all(fd_.get(), bytes);
}

Result<std::string> Cache::Writer::commit() { return cache_.commit(*this); }

Result<std::string> Cache::commit(Writer& writer) {
  const std::string sha256 = writer.sha256_.hex_digest();
  const std::string actual = writer.other_ ? writer.other_->hex_digest() : sha256;
  if (writer.expected_.is_given() && actual != writer.expected_.hex) {
    return fail(Code::kCorrupt, "the file does not match its hash", {{"expected", writer.expected_.hex}, {"actual", actual}});
  }
  const std::string name = file_name(sha256);
  if (::fchmod(writer.fd_.get(), 0400) != 0) return fail_errno("fchmod");
  if (::rename(writer.path_.c_str(), path(name).c_str()) != 0) return fail_errno(name);
  writer.path_.clear();
  const std::lock_guard lock(mutex_);
  verified_.insert(sha256);
  insert(name, writer.size_);
  return sha256;
}

Result<std::unique_ptr<Cache>> Cache::open(std::string directory, uint64_t limit_bytes) {
  std::unique_ptr<Cache> cache(new Cache(std::move(directory), limit_bytes));
  GB_TRYV(cache->load());
  return cache;
}

Result<void> Cache::load() {
  for (const char* name : {"files", "records", "partial"}) GB_TRYV(sys::make_directories(path(name), 0700));
  GB_TRYV(sys::remove_tree(path("partial"), true));
  std::vector<std::tuple<int64_t, std::string, uint64_t>> found;
  for (const char* kind : {"files", "records"}) {
    for (const std::string& entry : sys::list_directory(path(kind))) {
      const std::string name = std::string(kind) + "/" + entry;
      struct stat info {};
      if (::lstat(path(name).c_str(), &info) != 0) continue;
      if (!S_ISREG(info.st_mode) || !is_sha256_hex(entry)) {
        log::warn("registry.cache_foreign_entry", {{"name", name}});
        continue;
      }
      found.emplace_back(info.st_mtim.tv_sec, name, static_cast<uint64_t>(info.st_size));
    }
  }
  std::sort(found.begin(), found.end());
  const std::lock_guard lock(mutex_);
  for (auto& [time, name, size] : found) {
    used_ += size;
    insert(name, size);
  }
  evict_over_limit();
  return {};
}

void Cache::set_limit(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  evict_over_limit();
}

uint64_t Cache::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

Result<void> Cache::reserve(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ += bytes;
  evict_over_limit();
  if (used_ <= limit_) return {};
  used_ -= bytes;
  return fail(Code::kDiskFull, "the package cache is too small for this file", {{"limit", std::to_string(limit_)}});
}

void Cache::release(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
}

void Cache::evict_over_limit() {
  while (used_ > limit_ && !order_.empty()) drop(std::string(order_.front().name));
}

void Cache::insert(const std::string& name, uint64_t size) {
  if (const auto it = entries_.find(name); it != entries_.end()) {  // replaced
    used_ -= it->second->size;
    order_.erase(it->second);
  }
  entries_[name] = order_.insert(order_.end(), {name, size});
}

void Cache::touch(const std::string& name) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;
  order_.splice(order_.end(), order_, it->second);
  ::utimensat(AT_FDCWD, path(name).c_str(), nullptr, 0);  // so that the order outlives the process
}

// Who still reads it keeps its descriptor.
void Cache::drop(const std::string& name) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;
  if (::unlink(path(name).c_str()) != 0 && errno != ENOENT) log::warn("registry.cache_entry_left", {{"error", errno_text(errno)}});
  used_ -= it->second->size;
  order_.erase(it->second);
  entries_.erase(it);
  if (name.starts_with("files/")) verified_.erase(name.substr(6));
}

Result<std::unique_ptr<Cache::Writer>> Cache::begin(Integrity expected) {
  std::string partial;
  {
    const std::lock_guard lock(mutex_);
    partial = path("partial/" + std::to_string(next_partial_++));
  }
  GB_TRY(auto fd, sys::open_fd(partial, O_RDWR | O_CREAT | O_EXCL, 0600));
  return std::unique_ptr<Writer>(new Writer(*this, std::move(partial), std::move(fd), std::move(expected)));
}

bool Cache::contains(const std::string& sha256) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(file_name(sha256));
}

bool Cache::matches(const std::string& sha256, int fd) {
  Hasher hasher(DigestKind::kSha256);
  std::vector<char> buffer(1 << 20);
  off_t at = 0;
  for (ssize_t n; (n = ::pread(fd, buffer.data(), buffer.size(), at)) != 0; at += n) {
    if (n < 0) return false;
    hasher.update({buffer.data(), static_cast<size_t>(n)});
  }
  return hasher.hex_digest() == sha256;
}

std::optional<Cache::File> Cache::find(const std::string& sha256) {
  const std::string name = file_name(sha256);
  bool is_verified = false;
  {
    const std::lock_guard lock(mutex_);
    if (!entries_.contains(name)) return std::nullopt;
    touch(name);
    is_verified = verified_.contains(sha256);
  }
  auto fd = sys::open_fd(path(name), O_RDONLY | O_NOFOLLOW);
  struct stat info {};
  const bool is_good = fd && ::fstat(fd->get(), &info) == 0 && (is_verified || matches(sha256, fd->get()));
  const std::lock_guard lock(mutex_);
  if (!is_good) {
    log::warn("registry.cache_file_damaged", {{"sha256", sha256}});
    drop(name);
    return std::nullopt;
  }
  verified_.insert(sha256);
  return File{std::move(*fd), static_cast<uint64_t>(info.st_size), sha256};
}

bool Cache::has_record(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  return entries_.contains(record_name(key));
}

std::optional<std::string> Cache::read_record(std::string_view key) {
  const std::string name = record_name(key);
  {
    const std::lock_guard lock(mutex_);
    if (!entries_.contains(name)) return std::nullopt;
    touch(name);
  }
  auto content = sys::read_file(path(name), kMaxRecordBytes);
  if (content && content->size() > kDigestBytes) {
    std::string rest = content->substr(kDigestBytes + 1);
    if (sha256_hex(rest) == std::string_view(*content).substr(0, kDigestBytes)) return rest;
  }
  const std::lock_guard lock(mutex_);
  drop(name);
  return std::nullopt;
}

Result<void> Cache::write_record(std::string_view key, std::string_view content) {
  const std::string name = record_name(key);
  const std::string all = sha256_hex(content) + "\n" + std::string(content);
  GB_TRYV(reserve(all.size()));
  std::string partial;
  {
    const std::lock_guard lock(mutex_);
    partial = path("partial/" + std::to_string(next_partial_++));
  }
  auto done = sys::put_file(partial, all, 0600);
  if (done && ::rename(partial.c_str(), path(name).c_str()) != 0) done = fail_errno(name);
  if (!done) {
    ::unlink(partial.c_str());
    release(all.size());
    return done;
  }
  const std::lock_guard lock(mutex_);
  insert(name, all.size());
  return {};
}

}  // namespace glovebox::registry
