// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "http/framing.h"

namespace glovebox::http {
namespace {

tl::unexpected<Refusal> refuse(int status, Code code, std::string message) {
  return tl::unexpected<Refusal>(Refusal{status, Error{code, std::move(message)}});
}
tl::unexpected<Refusal> malformed(std::string message) {
  return refuse(400, Code::kInvalidArgument, std::move(message));
}

// "METHOD SP … SP HTTP/1.1": what a request line may have besides its target.
constexpr size_t kRequestLineRest = 64;

bool is_token_char(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         kOthers.find(c) != kOthers.npos;
}

}  // namespace

Parsed<size_t> HeadScanner::scan(std::string_view bytes) {
  while (scanned_ < bytes.size()) {
    const size_t stop = std::min(bytes.size(), limits_.max_bytes);
    const size_t at = std::min(bytes.find('\n', scanned_), stop);
    if (bytes.substr(scanned_, at - scanned_).find('\0') != bytes.npos) {
      return malformed("the head holds a NUL byte");
    }
    if (at == stop) {
      scanned_ = stop;
      break;
    }
    auto is_end = end_line(bytes, at);
    if (!is_end) return tl::unexpected<Refusal>(std::move(is_end).error());
    scanned_ = line_start_ = at + 1;
    if (*is_end) return at + 1;
  }
  if (lines_ == 0 && scanned_ - line_start_ > limits_.max_target_bytes + kRequestLineRest) {
    return refuse(
        414, Code::kPayloadTooLarge,
        "the request target is longer than " + std::to_string(limits_.max_target_bytes) + " bytes");
  }
  if (scanned_ >= limits_.max_bytes) {
    return refuse(431, Code::kPayloadTooLarge,
                  "the head is larger than " + std::to_string(limits_.max_bytes) + " bytes");
  }
  return 0;
}

// Judges the line that ends at `line_feed`; true when it is the empty line.
Parsed<bool> HeadScanner::end_line(std::string_view bytes, size_t line_feed) {
  if (line_feed == line_start_ || bytes[line_feed - 1] != '\r') {
    return malformed("a line of the head ends in LF without CR");
  }
  const std::string_view line = bytes.substr(line_start_, line_feed - 1 - line_start_);
  if (line.find('\r') != line.npos) return malformed("a line of the head holds a CR");
  if (line.empty() && lines_ > 0) return true;
  if (line.empty()) return malformed("the request line is empty");
  if (lines_ > 0 && (line[0] == ' ' || line[0] == '\t'))
    return malformed("a header is folded over two lines");
  if (lines_ == 0 && line.size() > limits_.max_target_bytes + kRequestLineRest) {
    return refuse(
        414, Code::kPayloadTooLarge,
        "the request target is longer than " + std::to_string(limits_.max_target_bytes) + " bytes");
  }
  if (++lines_ > limits_.max_count + 1) {
    return refuse(431, Code::kPayloadTooLarge,
                  "more than " + std::to_string(limits_.max_count) + " headers");
  }
  return false;
}

bool is_valid_header(std::string_view name, std::string_view value) {
  const auto is_bad = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7F;
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), is_token_char) &&
         std::none_of(value.begin(), value.end(), is_bad);
}

}  // namespace glovebox::http
