// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "base/async.h"

namespace glovebox::http {

// A two-way stream of bytes: a socket, or anything that can carry HTTP. One reader and one writer
// at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // At least one byte, or 0 at the end of the stream.
  virtual Async<size_t> read_some(char* data, size_t size) = 0;
  virtual Async<void> write(std::string_view data) = 0;
  // Tells the peer that nothing more comes; reading goes on.
  virtual void shutdown_write() = 0;
  // Ends both directions; operations under way fail with kCancelled.
  virtual void close() = 0;
};

}  // namespace glovebox::http
