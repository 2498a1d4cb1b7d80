// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/output_stream.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace glovebox::agent {

size_t OutputStream::room() const {
  const uint64_t kept = end_ - start_;
  return kept >= channel::kWindowBytes ? 0 : channel::kWindowBytes - kept;
}

uint64_t OutputStream::held_bytes() const {
  int held = 0;
  if (!is_open() || ::ioctl(fd_.get(), FIONREAD, &held) != 0) return 0;
  return static_cast<uint64_t>(std::max(held, 0));
}

size_t OutputStream::widen_pipe() const {
  constexpr int kWidest = 1 << 20;  // what /proc/sys/fs/pipe-max-size allows everybody by default
  int size = ::fcntl(fd_.get(), F_GETPIPE_SZ);
  if (size < kWidest) size = std::max(size, ::fcntl(fd_.get(), F_SETPIPE_SZ, kWidest));
  return static_cast<size_t>(std::max(size, 4096));
}

OutputStream::ReadResult OutputStream::read_some() {
  char buffer[kReadBytes];
  size_t limit = sizeof buffer;
  if (!is_collected() && !drained_) limit = std::min(limit, room());
  if (remaining_ && *remaining_ > 0) limit = std::min<uint64_t>(limit, *remaining_);
  if (limit == 0) return ReadResult::kNothing;
  const ssize_t n = ::read(fd_.get(), buffer, limit);
  if (n > 0) {
    take(std::string_view(buffer, static_cast<size_t>(n)));
    return ReadResult::kBytes;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (remaining_ && errno == EAGAIN) remaining_ = 0;
    return ReadResult::kNothing;
  }
  return ReadResult::kEnd;  // a pty's master says EIO when its other side is closed
}

void OutputStream::take(std::string_view bytes) {
  if (is_collected())
    return;  // written after the end of the execution: read so that nobody blocks, not output
  if (remaining_) *remaining_ -= bytes.size();
  end_ += bytes.size();
  if (drained_) {
    dropped_ += bytes.size();
    start_ = sent_ = end_;
  } else {
    kept_.append(bytes);
  }
}

std::string OutputStream::next_payload() {
  std::string payload = channel::stream_header(number_, sent_);
  const size_t n = std::min<uint64_t>(kReadBytes, end_ - sent_);
  payload.append(kept_, sent_ - start_, n);
  sent_ += n;
  return payload;
}

void OutputStream::acknowledge(uint64_t offset) {
  offset = std::clamp(offset, start_, sent_);
  kept_.erase(0, offset - start_);
  start_ = offset;
  if (kept_.empty() && kept_.capacity() > channel::kMaxPayloadFromAgent) kept_ = std::string();
}

void OutputStream::rewind(uint64_t offset) {
  offset = std::clamp(offset, start_, end_);
  sent_ = std::max(sent_, offset);
  acknowledge(offset);
  sent_ = offset;
}

void OutputStream::drain() {
  drained_ = true;
  dropped_ += end_ - sent_;
  kept_ = std::string();
  start_ = sent_ = end_;
}

}  // namespace glovebox::agent
