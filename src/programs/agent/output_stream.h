// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "channel/frame.h"

namespace glovebox::agent {

// One output stream of an execution: bytes from a pipe or pty, kept until the daemon acknowledges
// them, at most a window of them. Offsets count from the stream's first byte. No event handling
// here.
class OutputStream {
 public:
  explicit OutputStream(uint8_t number) : number_(number) {}

  void open(UniqueFd fd, bool is_pty) {
    fd_ = std::move(fd);
    is_pty_ = is_pty;
  }
  int fd() const { return fd_.get(); }
  bool is_open() const { return static_cast<bool>(fd_); }
  bool is_pty() const { return is_pty_; }
  void close() { fd_.reset(); }

  // May be read now: there is window, or the bytes will be dropped anyway.
  bool wants_bytes() const { return is_collected() || drained_ || room() > 0; }
  // What is read now goes nowhere, and nobody waits for it.
  bool is_discarded() const {
    return is_open() && !is_pty_ && (is_collected() || (drained_ && !remaining_));
  }
  // As large as the kernel gives it to us; how large that is. For a stream whose bytes are
  // discarded: fewer and larger pieces.
  size_t widen_pipe() const;
  enum class ReadResult { kBytes, kNothing, kEnd };
  ReadResult read_some();

  // The main process has ended: what the pipe holds now still counts, at most `bytes` more when
  // given.
  void end_after(std::optional<uint64_t> bytes) { remaining_ = bytes ? bytes : held_bytes(); }
  bool is_collected() const { return !is_open() || (remaining_ && *remaining_ == 0); }

  bool has_unsent() const { return sent_ < end_; }
  // The next OUTPUT payload, and marks it sent.
  std::string next_payload();
  // The daemon has everything before `offset`.
  void acknowledge(uint64_t offset);
  // A new connection: repeat from `offset`, which also acknowledges what is before it.
  void rewind(uint64_t offset);
  void drain();

  uint64_t start() const { return start_; }
  uint64_t end() const { return end_; }
  uint64_t dropped() const { return dropped_; }

 private:
  static constexpr size_t kReadBytes = channel::kMaxPayloadFromAgent - channel::kStreamHeaderBytes;
  size_t room() const;
  uint64_t held_bytes() const;
  void take(std::string_view bytes);

  uint8_t number_;
  UniqueFd fd_;
  bool is_pty_ = false;
  bool drained_ = false;
  std::string kept_;  // the bytes from start_ to end_
  uint64_t start_ = 0, sent_ = 0, end_ = 0, dropped_ = 0;
  std::optional<uint64_t> remaining_;
};

}  // namespace glovebox::agent
