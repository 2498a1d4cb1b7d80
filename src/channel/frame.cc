// SPDX-License-Identifier: Apache-2.0
#include "channel/frame.h"

#include <endian.h>

namespace glovebox::channel {
namespace {

// What an unfinished message costs even when it is empty.
constexpr size_t kPartCost = 128;

void put_u32(char* out, uint32_t v) {
  v = htole32(v);
  std::memcpy(out, &v, sizeof v);
}
uint32_t get_u32(const char* in) {
  uint32_t v;
  std::memcpy(&v, in, sizeof v);
  return le32toh(v);
}

}  // namespace

std::string sync_mark(std::string_view nonce16) {
  GB_ASSERT(nonce16.size() == 16);
  return "\xF0glovebox-sync\r\n" + std::string(nonce16);
}

void put_header(char* out, const Header& header) {
  put_u32(out, header.length);
  put_u32(out + 4, header.channel);
  out[8] = static_cast<char>(header.type);
  out[9] = static_cast<char>(header.flags);
  out[10] = out[11] = 0;
}

Header get_header(const char* in) {
  return Header{get_u32(in), get_u32(in + 4), static_cast<Type>(static_cast<uint8_t>(in[8])),
                static_cast<uint8_t>(in[9])};
}

void append_frame(std::string& out, uint32_t channel, Type type, std::string_view payload, uint8_t flags) {
  char header[kHeaderBytes];
  put_header(header, Header{static_cast<uint32_t>(payload.size()), channel, type, flags});
  out.append(header, sizeof header);
  out.append(payload);
}

void append_message(std::string& out, uint32_t channel, Type type, std::string_view message, size_t max_payload) {
  while (message.size() > max_payload) {
    append_frame(out, channel, type, message.substr(0, max_payload), kFlagMore);
    message.remove_prefix(max_payload);
  }
  append_frame(out, channel, type, message);
}

void append_u64(std::string& out, uint64_t value) {
  value = htole64(value);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

uint64_t get_u64(const char* in) {
  uint64_t v;
  std::memcpy(&v, in, sizeof v);
  return le64toh(v);
}

std::string stream_header(uint8_t stream, uint64_t offset) {
  std::string out(8, '\0');
  out[0] = static_cast<char>(stream);
  append_u64(out, offset);
  return out;
}

void Decoder::feed(std::string_view bytes) {
  if (at_ > 0 && at_ == buffer_.size()) {
    buffer_.clear();
    at_ = 0;
  } else if (at_ > 256 * 1024) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  buffer_.append(bytes);
}

void Decoder::reset() {
  buffer_.clear();
  at_ = 0;
  parts_.clear();
  joined_ = 0;
}

Result<bool> Decoder::next(Frame* frame) {
  while (buffered() >= kHeaderBytes) {
    const Header header = get_header(buffer_.data() + at_);
    if (header.length > max_payload_) {
      return fail(Code::kAgentProtocol, "frame of " + std::to_string(header.length) + " bytes, at most " +
                                            std::to_string(max_payload_) + " are allowed");
    }
    if (buffered() < kHeaderBytes + header.length) return false;
    const std::string_view payload(buffer_.data() + at_ + kHeaderBytes, header.length);
    at_ += kHeaderBytes + header.length;
    GB_TRY(const bool whole, join(header, payload, frame));
    if (whole) return true;
  }
  return false;
}

Result<bool> Decoder::join(const Header& header, std::string_view payload, Frame* frame) {
  const bool more = (header.flags & kFlagMore) != 0;
  auto part = parts_.find(header.channel);
  if (part == parts_.end()) {
    if (!more) {
      frame->channel = header.channel;
      frame->type = header.type;
      frame->payload.assign(payload);
      return true;
    }
    part = parts_.emplace(header.channel, Frame{header.channel, header.type, {}}).first;
    joined_ += kPartCost;
  }
  if (part->second.type != header.type) {
    return fail(Code::kAgentProtocol, "a message changed its type between its parts");
  }
  joined_ += payload.size();
  if (joined_ > max_joined_) {
    return fail(Code::kAgentProtocol, "joined messages exceed " + std::to_string(max_joined_) + " bytes");
  }
  part->second.payload.append(payload);
  if (more) return false;
  *frame = std::move(part->second);
  joined_ -= frame->payload.size() + kPartCost;
  parts_.erase(part);
  return true;
}

}  // namespace glovebox::channel
