// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "image/templates.h"

struct archive;  // libarchive's

// The members of an image archive as files of their own: an archive may be compressed and may name
// its members in any order.
namespace glovebox::image {

struct Blob {
  std::string file;  // in the blob directory
  uint64_t size = 0;
  std::string sha256;
};

class Blobs {
 public:
  // Files are made in `directory_fd`, which stays the caller's.
  explicit Blobs(int directory_fd) : directory_(directory_fd) {}

  // The members of a tar file, also a compressed one. kCorrupt when it ends early, kPayloadTooLarge
  // past `limits`.
  Result<void> spool_archive(int archive_fd, const ImportLimits& limits);
  // What copy_layout() left in the directory.
  Result<void> adopt_layout();

  // By member name; follows links of old `docker save` archives. nullptr when absent.
  const Blob* find(const std::string& name) const;
  // By "sha256:…" with its content compared. kCorrupt when missing or different.
  Result<const Blob*> by_digest(const std::string& digest) const;
  Result<UniqueFd> open(const Blob& blob) const;
  Result<std::string> read(const Blob& blob, size_t max_bytes) const;
  uint64_t total_bytes() const { return total_; }

 private:
  Result<void> add_member(struct archive* a, const std::string& name, uint64_t max_bytes);

  int directory_;
  uint64_t total_ = 0;
  std::map<std::string, Blob> blobs_;
  std::map<std::string, std::string> links_;
};

// For the daemon's side, which may read what the helper may not: copies the parts of an OCI layout
// directory into `directory_fd`.
Result<void> copy_layout(const std::string& layout, int directory_fd, const ImportLimits& limits);

}  // namespace glovebox::image
