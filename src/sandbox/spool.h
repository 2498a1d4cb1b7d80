// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sandbox/service.h"

namespace glovebox::sandbox {

// The output of one execution: the bytes of both streams in the order they arrived, and where one stream follows the other. Small
// output stays in memory; beyond that it moves to a file (<path>.out, <path>.idx), which a later daemon can read.
class Spool {
 public:
  explicit Spool(std::string path) : path_(std::move(path)) {}

  // Takes bytes; they are in memory until write_out().
  void append(Stream stream, std::string_view bytes);

  uint64_t end() const { return written_ + memory_.size(); }  // the next cursor
  size_t unwritten() const { return memory_.size(); }
  bool has_file() const { return written_ > 0; }
  uint64_t stream_end(Stream stream) const { return stream_ends_[stream == Stream::kStderr]; }
  bool index_full() const { return switches_.size() >= kMaxSwitches; }

  // What write_out() has to write, taken out so that the blocking pool can do it while append() goes on.
  struct Batch {
    std::string bytes;
    uint64_t at = 0;
    uint64_t stream_ends[2] = {0, 0};  // when the batch was taken
    std::string index;                 // new entries
    uint64_t index_at = 0;             // their place in the index
  };
  // Blocking. Creates the files at the first call; `batch` from take_batch().
  Result<void> write(const Batch& batch);
  Batch take_batch();
  void batch_written(const Batch& batch);  // back on the loop

  // Chunks from `cursor` on that are in memory or in a batch under way; empty when the file has to be read.
  std::vector<Chunk> read_memory(uint64_t cursor, size_t max_bytes) const;
  bool in_memory(uint64_t cursor) const { return cursor >= written_; }
  // Blocking read of the file's part.
  struct FileRead {
    uint64_t cursor = 0;
    size_t bytes = 0;
  };
  FileRead plan_file_read(uint64_t cursor, size_t max_bytes) const;
  static Result<std::string> read_file(const std::string& path, FileRead what);
  // Cuts bytes that start at `cursor` into chunks by stream.
  std::vector<Chunk> cut(uint64_t cursor, std::string bytes) const;

  // The memory part for the store, and back; only without a file. kCorrupt when the blob is not one.
  std::string to_blob() const;
  Result<void> from_blob(std::string_view blob);
  void release_memory() { memory_.clear(), memory_.shrink_to_fit(), switches_.clear(), switches_.shrink_to_fit(); }
  // Opens the files an earlier daemon left, whenever it died; fills the index. Bytes after the last index entry are its stream's.
  // False when there are none. kCorrupt when index and bytes cannot belong together.
  Result<bool> open_existing();

  void close_files() { file_.reset(), index_file_.reset(); }  // reading opens them by name

  const std::string& path() const { return path_; }

 private:
  struct Switch {
    uint64_t offset;
    Stream stream;
  };
  static Result<std::vector<Switch>> parse_switches(std::string_view entries, uint64_t end);
  static constexpr size_t kMaxSwitches = 256 * 1024;  // 16 bytes each

  std::string path_;
  UniqueFd file_, index_file_;
  std::vector<Switch> switches_;
  size_t switches_written_ = 0;
  uint64_t stream_ends_[2] = {0, 0};
  std::string memory_;     // bytes from written_ on
  uint64_t written_ = 0;
  size_t in_flight_ = 0;   // front of memory_ that a batch is writing
};

}  // namespace glovebox::sandbox
