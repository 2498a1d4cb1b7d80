// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace glovebox::api::e2b {

// Takes a multipart/form-data body piece by piece. The body is hostile: heads of parts are at most 16 KiB, parts at most 10000; the
// contents are passed on as they come, so a part may have any size.
class Multipart {
 public:
  struct Event {
    enum class Kind { kBegin, kData, kEnd } kind = Kind::kData;
    std::string name, file_name;  // of kBegin
    std::string data;             // of kData
  };

  // `content_type`: of the request, with its boundary. kInvalidArgument.
  static Result<Multipart> create(std::string_view content_type);
  Result<std::vector<Event>> take(std::string_view bytes);
  // kInvalidArgument when the closing boundary has not come.
  Result<void> finish() const;

 private:
  enum class State { kPreamble, kAfterBoundary, kHead, kContent, kEpilogue };
  Result<bool> step(std::vector<Event>& events);  // false: needs more bytes
  Result<bool> step_boundary();
  Result<bool> step_head(std::vector<Event>& events);
  bool step_content(std::vector<Event>& events);

  std::string delimiter_;  // CR LF "--" boundary
  std::string buffer_ = "\r\n";  // so that the first boundary looks like the others
  State state_ = State::kPreamble;
  size_t parts_ = 0;
};

}  // namespace glovebox::api::e2b
