// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "image/archive.h"
#include "image/templates.h"

namespace glovebox::image {

// What all layers of one import have used up together.
struct LayerUse {
  uint64_t unpacked_bytes = 0;
  uint64_t entries = 0;
};

struct LayerSource {
  int fd = -1;  // at its start
  uint64_t stored_bytes = 0;
  std::string diff_id;  // compared with the uncompressed stream unless empty
  int number = 0;       // from 1, for messages; 0: a plain archive, in which no name means anything
};

// Applies one layer to "/": plain entries, whiteouts ".wh.NAME" and opaque markers ".wh..wh..opq".
// Runs jailed in the new root, so that links inside it cannot lead out; the names, links and sizes
// in the layer are hostile all the same. Devices are left out.
class LayerWriter {
 public:
  LayerWriter(const ImportLimits& limits, LayerUse& use, std::function<void()> on_progress)
      : limits_(limits), use_(use), on_progress_(std::move(on_progress)) {}

  Result<void> apply(const LayerSource& source);

 private:
  Result<void> entry(struct archive* a, struct archive_entry* e);
  Result<void> whiteout(const std::string& directory, const std::string& name);
  Result<void> remove_lower(const std::string& directory);
  Result<void> make_parents(const std::string& path);
  Result<void> make_directory(const std::string& path);
  Result<void> make_file(struct archive* a, struct archive_entry* e, const std::string& path);
  Result<void> make_link(const std::string& path, const std::string& target);
  Result<void> attributes(struct archive_entry* e, const std::string& path);
  Result<void> charge(uint64_t bytes);
  void remember(const std::string& path);
  void apply_directory_times();

  const ImportLimits& limits_;
  LayerUse& use_;
  std::function<void()> on_progress_;
  uint64_t stored_bytes_ = 0, layer_bytes_ = 0;
  bool is_layer_ = true;
  std::unordered_set<ino_t>
      made_;  // inodes that this layer made or touched: its whiteouts speak of lower layers only
  std::map<std::string, timespec> directory_times_;
};

}  // namespace glovebox::image
