// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// The archive format of tar_out and tar_in: POSIX ustar with pax extended headers; GNU long names
// and numbers are also read. Source: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual,
// "Basic Tar Format". No I/O here.
namespace glovebox::agent {

constexpr size_t kTarBlock = 512;

struct TarEntry {
  char type = '0';  // '0' file, '1' hard link, '2' symbolic link, '5' directory; others as read
  std::string path;
  std::string target;  // of a link
  uint64_t size = 0;
  uint32_t mode = 0644;
  uint32_t uid = 0, gid = 0;
  std::string user, group;
  int64_t mtime = 0;  // seconds
};

inline size_t tar_padding(uint64_t size) {
  return (kTarBlock - size % kTarBlock) % kTarBlock;
}

// The blocks before the entry's content: its header, after a pax header where the old format is too
// small.
std::string tar_header(const TarEntry& entry);

// Collects headers until an entry is complete.
class TarReader {
 public:
  enum class Kind { kEntry, kNeedsContent, kEnd };
  // One header block. kNeedsContent: `*content` bytes (padded) follow that belong to the header and
  // go to take_content().
  Result<Kind> take_header(std::string_view block, TarEntry* entry, size_t* content);
  Result<void> take_content(std::string_view content);

 private:
  Result<void> take_pax(std::string_view content);
  void apply_extras(TarEntry& entry) const;

  char pending_ = 0;  // the type whose content comes next
  std::map<std::string, std::string, std::less<>> extras_;
};

}  // namespace glovebox::agent
