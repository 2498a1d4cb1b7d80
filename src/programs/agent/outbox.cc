// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/outbox.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace glovebox::agent {

Outbox::Outbox(Loop& loop, int fd, std::function<void()> on_room)
    : loop_(loop), fd_(fd), on_room_(std::move(on_room)) {
  loop_.watch(fd_, 0, [this](uint32_t) { on_writable(); });
}

uint64_t Outbox::restart(std::string_view mark) {
  std::lock_guard lock(mutex_);
  queue_.assign(mark);
  at_ = 0;
  held_ = false;
  ++connection_;
  room_.notify_all();
  flush_locked();
  return connection_;
}

void Outbox::hold(channel::Type type) {
  std::lock_guard lock(mutex_);
  if (held_ || connection_ == 0) return;
  append_locked(0, type, {});
  held_ = true;
  hold_at_ = queue_.size();
}

void Outbox::go_on() {
  {
    std::lock_guard lock(mutex_);
    held_ = false;
    if (!flush_locked()) return;
    room_.notify_all();
  }
  on_room_();
}

void Outbox::send(uint32_t channel, channel::Type type, std::string_view message) {
  std::lock_guard lock(mutex_);
  append_locked(channel, type, message);
}

bool Outbox::send_for(uint64_t connection, uint32_t channel, channel::Type type,
                      std::string_view message) {
  std::lock_guard lock(mutex_);
  if (connection != connection_) return false;
  append_locked(channel, type, message);
  return true;
}

bool Outbox::wait_for_room(uint64_t connection) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] { return connection != connection_ || queue_.size() - at_ < kRoomBytes; });
  return connection == connection_;
}

bool Outbox::has_room() const {
  std::lock_guard lock(mutex_);
  return queue_.size() - at_ < kRoomBytes;
}

uint64_t Outbox::connection() const {
  std::lock_guard lock(mutex_);
  return connection_;
}

void Outbox::append_locked(uint32_t channel, channel::Type type, std::string_view message) {
  if (connection_ == 0) return;  // nobody has said HELLO
  const bool was_empty = at_ == queue_.size();
  if (was_empty) {
    queue_.clear();
    at_ = hold_at_ = 0;
  }
  channel::append_message(queue_, channel, type, message, channel::kMaxPayloadFromAgent);
  if (was_empty) flush_locked();
}

// Writes what the pipe takes; true when everything is out that may.
bool Outbox::flush_locked() {
  const size_t end = held_ ? hold_at_ : queue_.size();
  while (at_ < end) {
    const ssize_t n = ::write(fd_, queue_.data() + at_, end - at_);
    if (n > 0) {
      at_ += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) break;  // no reader: the next HELLO starts over
    if (at_ > kRoomBytes) {
      queue_.erase(0, at_);
      hold_at_ -= std::min(hold_at_, at_);
      at_ = 0;
    }
    if (!watching_) {
      watching_ = true;
      loop_.post([this] { loop_.change(fd_, EPOLLOUT); });
    }
    return false;
  }
  if (held_) return true;
  queue_.clear();
  if (queue_.capacity() > 2 * kRoomBytes) queue_.shrink_to_fit();
  at_ = 0;
  return true;
}

void Outbox::on_writable() {
  bool room = false;
  {
    std::lock_guard lock(mutex_);
    if (flush_locked()) {
      loop_.change(fd_, 0);
      watching_ = false;
    }
    room = queue_.size() - at_ < kRoomBytes;
    if (room) room_.notify_all();
  }
  if (room) on_room_();
}

}  // namespace glovebox::agent
