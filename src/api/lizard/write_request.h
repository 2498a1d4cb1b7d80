// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace glovebox::api::lizard {

// A whole file in one JSON body: {"path", "content", "encoding"?: "base64", "user"?}.
struct WriteRequest {
  std::string path, content, encoding, user;
};

// Parses such a body piece by piece, so that only the content itself is ever in memory. The body is hostile: strings only, known
// fields only, each once.
class WriteParser {
 public:
  WriteParser();
  ~WriteParser();
  Result<void> take(std::string_view piece);
  Result<WriteRequest> finish();
  size_t buffered() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Decodes base64 in order, a piece of some KiB at a time.
class Base64Reader {
 public:
  explicit Base64Reader(std::string_view text) : rest_(text) {}
  // Empty at the end. kInvalidArgument where the text is not base64.
  Result<std::string> read();

 private:
  std::string_view rest_;
};

}  // namespace glovebox::api::lizard
