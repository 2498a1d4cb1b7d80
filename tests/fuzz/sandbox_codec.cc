// SPDX-License-Identifier: Apache-2.0
// The agent's JSON: the first byte chooses the message. What is accepted can be encoded and read again.
#include <cstdint>
#include <string>

#include "channel/link.h"
#include "sandbox/codec.h"
#include "sandbox/snapshot_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace glovebox;
  using namespace glovebox::sandbox;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 13) {
    case 0: (void)codec::decode_entry(text); break;
    case 1: (void)codec::decode_entries(text); break;
    case 2: (void)codec::decode_processes(text); break;
    case 3: (void)codec::decode_read(text); break;
    case 4: (void)codec::decode_bool(text, "created"); break;
    case 5: (void)codec::decode_pid(text); break;
    case 6: (void)channel::error_from_agent(text); break;
    case 7:
      if (const auto known = codec::decode_hello(text)) {
        for (const auto& execution : *known) {
          if (execution.id.find_first_of("/.\0", 0, 3) != std::string::npos) __builtin_trap();
        }
      }
      break;
    case 8: {
      ExecInfo info;
      if (!codec::decode_exited(text, &info)) break;
      const auto copy = codec::decode_execution(codec::encode(info));
      if (!copy || !copy->outcome || copy->outcome->type != info.outcome->type || copy->stdout_bytes != info.stdout_bytes) __builtin_trap();
      break;
    }
    case 9: {
      const auto now = std::chrono::system_clock::now();
      (void)check_confirmation(text, Identity{}, "sb-1", now, now);
      break;
    }
    case 10:
      if (const auto snapshot = codec::decode_snapshot(text)) {
        if (!codec::decode_snapshot(codec::encode(*snapshot))) __builtin_trap();
      }
      break;
    case 11:
      if (const auto event = codec::decode_file_event(text)) {
        const std::string inside = "/" + event->path + "/";
        if (!event->path.empty() && (inside.find("/../") != std::string::npos || inside.find("//") != std::string::npos)) __builtin_trap();
      }
      break;
    default:
      if (const auto document = codec::decode_sandbox(text)) {
        if (!codec::decode_sandbox(codec::encode(*document))) __builtin_trap();
      }
  }
  return 0;
}
