// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/async.h"

namespace glovebox::sandbox {

// A log of JSON lines on disk that a reader follows with a cursor. Bounded: the oldest lines go when it grows beyond two segments.
// Survives the daemon. Loop thread only; the disk is touched on the blocking pool.
class EventLog : public std::enable_shared_from_this<EventLog> {
 public:
  static constexpr uint64_t kSegmentBytes = 4 << 20;

  EventLog(std::string directory, std::string name, Executor executor, BlockingPool* pool, uint64_t segment_bytes = kSegmentBytes);
  ~EventLog();

  // `line` holds no line feed.
  void append(std::string_view line);

  struct Entry {
    std::string line;
    uint64_t cursor = 0;  // where the next one begins
  };
  struct Page {
    std::vector<Entry> entries;  // oldest first
    uint64_t next = 0;           // to go on from, also when there is nothing yet
    bool lost = false;           // lines between the cursor and the first entry are gone
  };
  // Up to `limit` lines from `cursor` on; 0 is the beginning. A cursor that is not the end of a line goes on with the next line.
  Async<Page> read(uint64_t cursor, size_t limit);

 private:
  struct Files;
  Awaitable<void> flush();
  Awaitable<void> enter();
  void leave();

  Executor executor_;
  BlockingPool* pool_;
  std::shared_ptr<Files> files_;
  std::string pending_;
  bool is_busy_ = false, is_flushing_ = false;
  Notifier changed_;
};

}  // namespace glovebox::sandbox
