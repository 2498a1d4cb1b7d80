// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/result.h"

// The wire format of spec/channel.md. Used by both ends; no I/O here.
namespace glovebox::channel {

constexpr size_t kHeaderBytes = 12;
constexpr size_t kMaxFrameToAgent = 4096;                     // with header: PIPE_BUF, so a write is atomic
constexpr size_t kMaxPayloadToAgent = kMaxFrameToAgent - kHeaderBytes;
constexpr size_t kMaxPayloadFromAgent = 64 * 1024;
constexpr size_t kMaxMessageToAgent = 1 << 20;
constexpr size_t kMaxMessageFromAgent = 4 << 20;
constexpr uint64_t kWindowBytes = 256 * 1024;                 // output, stdin and bulk data, each direction
constexpr uint8_t kFlagMore = 1;

enum class Type : uint8_t {
  kHello = 0x01,
  kPing = 0x02,
  kPrepare = 0x03,
  kProceed = 0x04,
  kExec = 0x10,
  kStdin = 0x11,
  kStdinEof = 0x12,
  kSignal = 0x13,
  kKill = 0x14,
  kAck = 0x15,
  kDrain = 0x16,
  kResize = 0x17,
  kAttach = 0x18,
  kForget = 0x19,
  kRequest = 0x20,
  kDataToAgent = 0x21,
  kEndToAgent = 0x22,
  kWindowToAgent = 0x23,
  kCancel = 0x24,

  kHelloOk = 0x81,
  kPong = 0x82,
  kPrepared = 0x83,
  kProceeded = 0x84,
  kStarted = 0x90,
  kFailed = 0x91,
  kOutput = 0x92,
  kStdinAck = 0x93,
  kExited = 0x94,
  kGone = 0x95,
  kResponse = 0xA0,
  kData = 0xA1,
  kEnd = 0xA2,
  kWindow = 0xA3,
};

struct Header {
  uint32_t length = 0;
  uint32_t channel = 0;
  Type type = Type::kPing;
  uint8_t flags = 0;
};

struct Frame {
  uint32_t channel = 0;
  Type type = Type::kPing;
  std::string payload;
};

constexpr uint8_t kStdout = 1;
constexpr uint8_t kStderr = 2;
constexpr size_t kStreamHeaderBytes = 16;  // stream u8, 7 zero bytes, offset u64: OUTPUT and ACK

// "\xF0glovebox-sync\r\n" and the 16 bytes of the nonce.
constexpr size_t kSyncBytes = 32;
std::string sync_mark(std::string_view nonce16);

void put_header(char* out, const Header& header);
Header get_header(const char* in);
// Appends one frame. The caller keeps the payload within the direction's limit.
void append_frame(std::string& out, uint32_t channel, Type type, std::string_view payload, uint8_t flags = 0);
// Appends a message as frames of at most `max_payload`, with MORE on all but the last.
void append_message(std::string& out, uint32_t channel, Type type, std::string_view message, size_t max_payload);

std::string stream_header(uint8_t stream, uint64_t offset);
void append_u64(std::string& out, uint64_t value);
uint64_t get_u64(const char* in);

// Cuts a byte stream into frames and joins MORE parts. Hostile input: every length is checked before it is used, and memory
// is bounded by one frame plus `max_joined` bytes of joined parts over all channels.
class Decoder {
 public:
  Decoder(size_t max_payload, size_t max_joined) : max_payload_(max_payload), max_joined_(max_joined) {}

  void feed(std::string_view bytes);
  // True and *frame filled when a whole message is there; false when more bytes are needed. An error is final.
  Result<bool> next(Frame* frame);
  // Drops everything, parts of messages included.
  void reset();
  size_t buffered() const { return buffer_.size() - at_; }

 private:
  Result<bool> join(const Header& header, std::string_view payload, Frame* frame);

  size_t max_payload_, max_joined_;
  std::string buffer_;
  size_t at_ = 0;
  std::map<uint32_t, Frame> parts_;
  size_t joined_ = 0;
};

}  // namespace glovebox::channel
