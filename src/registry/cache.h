// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "base/unique_fd.h"
#include "registry/digest.h"

// What was fetched, on disk, shared by all sandboxes. <dir>/files/<sha256> holds whole files by content, <dir>/records/<sha256 of the
// key> small documents by name, <dir>/partial/ what is being written. Nothing is visible before it is complete and, for files, has
// the hash that it was asked for. Files of an earlier process are hashed again before they are first served, so that a torn write or
// a changed byte on disk is a miss, not a wrong package. The size of all of it together, unfinished files included, stays below
// the limit: what was used longest ago goes first. Every call may block; from any thread.
namespace glovebox::registry {

class Cache {
 public:
  struct File {
    UniqueFd fd;
    uint64_t size = 0;
    std::string sha256;
  };

  // A file that is being written. Removed unless committed.
  class Writer {
   public:
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;
    // kDiskFull when the cache cannot be made to hold it.
    Result<void> write(std::string_view bytes);
    uint64_t size() const { return size_; }
    int fd() const { return fd_.get(); }  // for readers of what is written so far
    // Makes it visible under its SHA-256, which is returned. kCorrupt, and it is gone, when it does not match `expected`.
    Result<std::string> commit();

   private:
    friend class Cache;
    Writer(Cache& cache, std::string path, UniqueFd fd, Integrity expected);
    Cache& cache_;
    std::string path_;
    UniqueFd fd_;
    uint64_t size_ = 0;
    Integrity expected_;
    Hasher sha256_{DigestKind::kSha256};
    std::optional<Hasher> other_;
  };

  // Takes over a directory (made when missing): unfinished files are removed, the rest is counted.
  static Result<std::unique_ptr<Cache>> open(std::string directory, uint64_t limit_bytes);
  void set_limit(uint64_t bytes);
  uint64_t used() const;

  Result<std::unique_ptr<Writer>> begin(Integrity expected);
  std::optional<File> find(const std::string& sha256);
  bool contains(const std::string& sha256) const;  // without a look at the disk

  // A record is at most what fits; one that cannot be read or is damaged is absent.
  std::optional<std::string> read_record(std::string_view key);
  Result<void> write_record(std::string_view key, std::string_view content);
  bool has_record(std::string_view key) const;

 private:
  struct Entry {
    std::string name;  // "files/…" or "records/…"
    uint64_t size = 0;
  };
  using Order = std::list<Entry>;  // longest unused first

  Cache(std::string directory, uint64_t limit) : directory_(std::move(directory)), limit_(limit) {}
  Result<void> load();
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  // Makes room for `bytes` more and counts them.
  Result<void> reserve(uint64_t bytes);
  void release(uint64_t bytes);
  void evict_over_limit();                                // with mutex_ held
  void insert(const std::string& name, uint64_t size);   // its bytes are counted already
  void touch(const std::string& name);
  void drop(const std::string& name);
  Result<std::string> commit(Writer& writer);
  bool matches(const std::string& sha256, int fd);

  const std::string directory_;
  mutable std::mutex mutex_;  // of all below
  uint64_t limit_;
  uint64_t used_ = 0;
  uint64_t next_partial_ = 0;
  Order order_;
  std::unordered_map<std::string, Order::iterator> entries_;
  std::set<std::string> verified_;  // files whose content this process has seen
};

}  // namespace glovebox::registry
