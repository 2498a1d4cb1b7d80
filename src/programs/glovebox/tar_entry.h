// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace glovebox::cli {

struct TarEntry {
  std::string name;  // at most 99 bytes
  unsigned mode = 0644, uid = 0, gid = 0;
};

// A tar (ustar) of one regular file, marks and all: what libarchive's writer would be asked not to
// make.
inline std::string tar_with_file(const TarEntry& entry, std::string_view content) {
  char head[512] = {};
  std::memcpy(head, entry.name.data(), entry.name.size());
  std::snprintf(head + 100, 8, "%07o", entry.mode);
  std::snprintf(head + 108, 8, "%07o", entry.uid);
  std::snprintf(head + 116, 8, "%07o", entry.gid);
  std::snprintf(head + 124, 12, "%011zo", content.size());
  std::snprintf(head + 136, 12, "%011o", 0);
  std::memset(head + 148, ' ', 8);
  head[156] = '0';
  std::memcpy(head + 257, "ustar\00000", 8);
  unsigned sum = 0;
  for (const char c : head) sum += static_cast<unsigned char>(c);
  std::snprintf(head + 148, 8, "%06o", sum);
  std::string out(head, sizeof head);
  out += content;
  out.append((512 - content.size() % 512) % 512 + 1024, '\0');
  return out;
}

}  // namespace glovebox::cli
