// SPDX-License-Identifier: Apache-2.0
// Feeds a byte stream to the request parser as a connection would: head after head, each body
// behind it. The first byte sets how large the pieces are in which the rest arrives; the outcome
// must not depend on it.
#include <algorithm>
#include <cstdint>
#include <string>

#include "http/framing.h"
#include "http/json.h"

namespace {

using namespace glovebox::http;

constexpr HeadLimits kLimits{4096, 1024, 20};

// What was understood, as text.
std::string parse_stream(std::string_view bytes, size_t piece) {
  std::string seen, buffer;
  std::unique_ptr<BodyDecoder> body;
  HeadScanner scanner(kLimits);
  std::string content;
  while (!bytes.empty()) {
    const size_t n = std::min(piece, bytes.size());
    buffer += bytes.substr(0, n);
    bytes.remove_prefix(n);
    for (;;) {
      if (!body) {
        const auto length = scanner.scan(buffer);
        if (!length) return seen + "refused";
        if (*length == 0) break;
        Request request;
        auto parsed = parse_request_head(std::string_view(buffer).substr(0, *length), request);
        if (!parsed) return seen + "refused";
        buffer.erase(0, *length);
        seen += request.method + " " + request.path + " " + std::to_string(request.headers.size()) +
                "\n";
        body = *std::move(parsed);
      }
      while (!body->is_done() && !buffer.empty()) {
        const size_t before = content.size();
        const auto used = body->decode(buffer, content, piece);
        if (!used) return seen + content + "broken";
        if (*used > buffer.size() || content.size() - before > piece) __builtin_trap();
        buffer.erase(0, *used);
        if (*used == 0) break;
      }
      if (!body->is_done()) break;
      seen += content + "\n";
      content.clear();
      body.reset();
      scanner = HeadScanner(kLimits);
    }
  }
  return seen + content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)glovebox::json::parse(text);
  if (text.empty()) return 0;
  const size_t piece = 1 + static_cast<uint8_t>(text[0]) % 64;
  if (parse_stream(text.substr(1), piece) != parse_stream(text.substr(1), size)) __builtin_trap();
  return 0;
}
