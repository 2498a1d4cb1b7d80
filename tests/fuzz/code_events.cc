// SPDX-License-Identifier: Apache-2.0
// What the code runner in a sandbox says, and what E2B clients are shown of it: one line of ASCII
// whatever came.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/e2b/code_view.h"
#include "code/events.h"
#include "http/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace glovebox;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  (void)code::decode_context(line);
  (void)code::decode_contexts(line);
  (void)code::decode_ok(line);
  (void)code::decode_ready(line);
  (void)code::decode_wish(line);
  const std::string ascii = api::e2b::ascii_json(line);
  for (const char c : ascii) {
    if (static_cast<unsigned char>(c) >= 0x80) std::abort();
  }
  const auto event = code::decode_event(line);
  if (!event) return 0;
  const std::string shown = api::e2b::event_line(*event, WallTime());
  if (shown.find('\n') != shown.size() - 1 || !json::parse_object(shown)) std::abort();
  return 0;
}
