// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "registry/url.h"

// The page of one package in PyPI's simple repository API: HTML (PEP 503) and JSON (PEP 691, 700), with yanked files (PEP 592) and
// metadata files (PEP 658, 714).
namespace glovebox::registry {

struct IndexFile {
  std::string filename;
  std::string url;              // absolute, of the upstream
  std::string sha256;           // empty: the index gives none
  std::string version;
  bool is_source = false;
  std::string requires_python;
  std::optional<uint64_t> size;
  std::string upload_time;      // as written; empty: the index does not say
  std::optional<int64_t> uploaded_at_ms;
  std::optional<std::string> yanked;  // the reason, maybe empty
  bool has_metadata = false;    // <url>.metadata exists
  std::string metadata_sha256;
};

struct Index {
  std::string name;  // normalised
  std::vector<IndexFile> files;
  const IndexFile* find(std::string_view filename) const;
};

// Files that do not belong to `package`, are no wheels or source distributions, or whose URL is none are left out.
// kCorrupt when it is no such page at all.
Result<Index> parse_index_json(std::string_view body, const Url& base, std::string_view package);
Result<Index> parse_index_html(std::string_view body, const Url& base, std::string_view package);

// "/pypi/files/<package>/<sha256 or "unhashed">/<filename>": host-relative, so it is right under whatever name we are reached.
std::string index_file_path(const Index& index, const IndexFile& file);

std::string render_index_json(const Index& index);
std::string render_index_html(const Index& index);

}  // namespace glovebox::registry
