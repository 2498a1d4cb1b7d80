// SPDX-License-Identifier: Apache-2.0
// What the agent reads: frames of the daemon's in any pieces, their JSON, and archives that callers hand in.
#include <cstdint>
#include <string>

#include "programs/agent/inbox.h"
#include "programs/agent/json.h"
#include "programs/agent/tar_format.h"

namespace {

using namespace glovebox::agent;

void read_archive(std::string_view bytes) {
  TarReader reader;
  while (bytes.size() >= kTarBlock) {
    TarEntry entry;
    size_t content = 0;
    const auto kind = reader.take_header(bytes.substr(0, kTarBlock), &entry, &content);
    if (!kind || *kind == TarReader::Kind::kEnd) return;
    bytes.remove_prefix(kTarBlock);
    if (*kind != TarReader::Kind::kNeedsContent) continue;
    if (content > (64u << 20)) __builtin_trap();  // would be collected in memory
    if (content > bytes.size() || !reader.take_content(bytes.substr(0, content))) return;
    bytes.remove_prefix(content);
  }
}

std::string read_frames(std::string_view bytes, size_t piece) {
  Inbox inbox;
  std::string seen;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    inbox.feed(bytes.substr(0, piece));
    Inbox::Message message;
    while (inbox.next(&message)) {
      seen += std::to_string(message.channel) + ":" + message.payload + "\n";
      (void)parse_object(message.payload);
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    read_archive(bytes);
  } else if (read_frames(bytes, bytes.size() + 1) != read_frames(bytes, 1 + data[0] / 2)) {
    __builtin_trap();
  }
  return 0;
}
