// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/client.h"
#include "http/message.h"

// HTTP/1.1 framing without I/O, for programs that relay messages. Everything here reads bytes of a peer that may be hostile.
namespace glovebox::http {

// Why a message is not taken, and the status that says so.
struct Refusal {
  int status = 400;
  Error error;
};
template <class T>
using Parsed = tl::expected<T, Refusal>;

struct HeadLimits {
  size_t max_bytes;
  size_t max_target_bytes;
  size_t max_count;
};

// Finds the end of a head while its bytes come in, and refuses what parsers disagree about (bare
// LF, NUL, folded lines): such disagreement is how requests are smuggled past a proxy.
class HeadScanner {
 public:
  explicit HeadScanner(const HeadLimits& limits) : limits_(limits) {}
  // `bytes` is the head so far, from its first byte. The length of the head once complete, else 0.
  Parsed<size_t> scan(std::string_view bytes);

 private:
  Parsed<bool> end_line(std::string_view bytes, size_t line_feed);

  HeadLimits limits_;
  size_t scanned_ = 0;     // bytes looked at
  size_t line_start_ = 0;  // of the line under way
  size_t lines_ = 0;       // complete ones
};

// The body of one message, after its head was parsed.
class BodyDecoder {
 public:
  virtual ~BodyDecoder() = default;
  // Consumes from `in` and appends at most `room` decoded bytes to `out`; the number of bytes
  // consumed. It may consume nothing: then it needs more input than `in` holds, or `room` is 0.
  // kInvalidArgument when the framing is broken.
  virtual Result<size_t> decode(std::string_view in, std::string& out, size_t room) = 0;
  // The stream has ended: kInvalidArgument when the body is not complete.
  virtual Result<void> end_of_stream() = 0;
  virtual bool is_done() const = 0;
  // The connection may be used again, as far as this message's version and Connection header go.
  virtual bool keep_alive() const = 0;
};

// `head` is what HeadScanner found complete.
Parsed<std::unique_ptr<BodyDecoder>> parse_request_head(std::string_view head, Request& out);
// `is_bodiless`: the answer to HEAD. kCorrupt when it is no HTTP/1.x head.
Result<std::unique_ptr<BodyDecoder>> parse_response_head(std::string_view head, bool is_bodiless,
                                                         ResponseHead& out);

// A header name that is a token, and a value without control characters.
bool is_valid_header(std::string_view name, std::string_view value);

}  // namespace glovebox::http
