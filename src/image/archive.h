// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace glovebox::image {

struct FreeArchive {
  void operator()(struct archive* a) const { ::archive_read_free(a); }
};
using ArchivePtr = std::unique_ptr<struct archive, FreeArchive>;

// kCorrupt with libarchive's words.
inline tl::unexpected<Error> archive_error(struct archive* a, const std::string& what) {
  const char* text = ::archive_error_string(a);
  return fail(Code::kCorrupt, what + ": " + (text != nullptr ? text : "not an archive"));
}

// The entry's name as bytes; libarchive has none when it cannot convert a wide one.
inline std::string entry_text(const char* bytes, const char* utf8) {
  return bytes != nullptr ? bytes : utf8 != nullptr ? utf8 : "";
}

// "a/b" for "/a//./b/"; kCorrupt for a name with "..", kPayloadTooLarge for one over `max_bytes`.
// "" is the root.
Result<std::string> clean_path(const std::string& name, size_t max_bytes);

}  // namespace glovebox::image
