// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "channel/frame.h"

namespace glovebox::agent {

// Cuts the daemon's bytes into messages. Not channel::Decoder, because the agent must survive what
// that treats as the end: a daemon that died in the middle of a message of several frames, and
// another one that starts over with HELLO.
class Inbox {
 public:
  struct Message {
    uint32_t channel = 0;
    channel::Type type = channel::Type::kPing;
    std::string payload;
    bool too_long = false;            // the payload was dropped: above kMaxMessageToAgent
    std::vector<size_t> part_starts;  // where each frame's payload begins, when there were several
  };

  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // False when more bytes are needed.
  bool next(Message* message);
  // Forgets unfinished messages: they came from a daemon that is gone.
  void forget_parts() { parts_.clear(); }

 private:
  static void add(Message& message, std::string_view payload);

  std::string buffer_;
  size_t at_ = 0;
  std::map<uint32_t, Message> parts_;
};

}  // namespace glovebox::agent
