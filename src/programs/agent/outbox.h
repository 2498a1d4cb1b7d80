// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "channel/frame.h"
#include "programs/agent/loop.h"

namespace glovebox::agent {

// The only writer of the pipe to the daemon. Frames go out whole and in order, from whichever
// thread they come. It never refuses a frame; producers of bulk data ask has_room() first, or wait
// for it, so that the queue stays near kRoomBytes.
class Outbox {
 public:
  static constexpr size_t kRoomBytes = 256 * 1024;

  // `fd` is non-blocking and stays open for ever. `on_room` runs on the loop when has_room() became
  // true again.
  Outbox(Loop& loop, int fd, std::function<void()> on_room);

  // Starts a connection: what was queued for the old one is dropped, `mark` goes out first. Returns
  // its number. Loop only.
  uint64_t restart(std::string_view mark);

  // Sends `type` on channel 0 behind what is queued, and then nothing more until go_on() or restart().
  void hold(channel::Type type);
  void go_on();

  // Loop thread: for the present connection.
  void send(uint32_t channel, channel::Type type, std::string_view message = {});
  // Any thread: drops the frame (false) when `connection` is not the present one.
  bool send_for(uint64_t connection, uint32_t channel, channel::Type type,
                std::string_view message);
  // Any thread but the loop's: waits for room; false once `connection` is over. Look at your own
  // reasons to give up after it.
  bool wait_for_room(uint64_t connection);

  bool has_room() const;
  uint64_t connection() const;

 private:
  void append_locked(uint32_t channel, channel::Type type, std::string_view message);
  bool flush_locked();
  void on_writable();

  Loop& loop_;
  const int fd_;
  const std::function<void()> on_room_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::string queue_;
  size_t at_ = 0;
  uint64_t connection_ = 0;
  bool held_ = false;
  size_t hold_at_ = 0;  // what of the queue may still be written while held
  bool watching_ = false;
};

}  // namespace glovebox::agent
