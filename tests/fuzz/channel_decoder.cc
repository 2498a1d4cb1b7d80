// SPDX-License-Identifier: Apache-2.0
// The frame decoder, fed in pieces whose sizes the first bytes choose. What it understands must not depend on the pieces, and what it
// holds is bounded.
#include <cstdint>
#include <string>

#include "channel/frame.h"

namespace {

using namespace glovebox::channel;
constexpr size_t kMaxPayload = 512, kMaxJoined = 4096;

std::string understand(std::string_view bytes, size_t piece) {
  Decoder decoder(kMaxPayload, kMaxJoined);
  std::string seen;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    decoder.feed(part);
    Frame frame;
    while (true) {
      const auto whole = decoder.next(&frame);
      if (!whole) return seen + "refused";
      if (!*whole) break;
      if (frame.payload.size() > kMaxJoined) __builtin_trap();
      seen += std::to_string(frame.channel) + "," + std::to_string(static_cast<int>(frame.type)) + ":" + frame.payload + "\n";
    }
    if (decoder.buffered() > kHeaderBytes + kMaxPayload) __builtin_trap();
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string whole = understand(bytes, bytes.size() + 1);
  if (understand(bytes, 1 + data[0]) != whole || understand(bytes, 1) != whole) __builtin_trap();
  return 0;
}
