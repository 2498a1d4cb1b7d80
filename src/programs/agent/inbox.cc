// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/inbox.h"

namespace glovebox::agent {

bool Inbox::next(Message* message) {
  for (;;) {
    const size_t have = buffer_.size() - at_;
    if (have < channel::kHeaderBytes) break;
    const channel::Header header = channel::get_header(buffer_.data() + at_);
    if (have < channel::kHeaderBytes + header.length) break;
    const std::string_view payload(buffer_.data() + at_ + channel::kHeaderBytes, header.length);
    at_ += channel::kHeaderBytes + header.length;
    auto part = parts_.find(header.channel);
    if (part != parts_.end() && part->second.type != header.type) {
      parts_.erase(part);
      part = parts_.end();
    }
    const bool more = (header.flags & channel::kFlagMore) != 0;
    if (part == parts_.end() && !more) {
      *message = Message{header.channel, header.type, std::string(payload)};
      return true;
    }
    if (part == parts_.end()) {
      part = parts_.emplace(header.channel, Message{header.channel, header.type}).first;
    }
    add(part->second, payload);
    if (more) continue;
    *message = std::move(part->second);
    parts_.erase(part);
    return true;
  }
  buffer_.erase(0, at_);
  at_ = 0;
  return false;
}

void Inbox::add(Message& message, std::string_view payload) {
  if (message.payload.size() + payload.size() > channel::kMaxMessageToAgent) {
    message.too_long = true;
    message.payload.clear();
  }
  if (message.too_long) return;
  message.part_starts.push_back(message.payload.size());
  message.payload.append(payload);
}

}  // namespace glovebox::agent
