// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/client_hello.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policy/egress.h"

namespace glovebox::egress {
namespace {

constexpr uint8_t kClientHelloType = 1;
constexpr uint16_t kServerNameExtension = 0, kEncryptedHelloExtension = 0xFE0D;
constexpr size_t kMaxRecordBytes = 1 << 14, kMaxExtensions = 128;

tl::unexpected<Error> malformed(const char* what) {
  return fail(Code::kInvalidArgument, std::string("the ClientHello ") + what);
}

// Takes from the front of bytes; a read past the end sets `failed` and gives zeros.
struct Cursor {
  std::string_view rest;
  bool failed = false;

  std::string_view take(size_t n) {
    if (n > rest.size()) {
      failed = true;
      rest = {};
      return {};
    }
    const auto out = rest.substr(0, n);
    rest.remove_prefix(n);
    return out;
  }
  size_t number(size_t bytes) {
    size_t value = 0;
    for (const char c : take(bytes)) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }
  Cursor vector(size_t length_bytes) {
    const size_t length = number(length_bytes);
    return Cursor{take(length), false};
  }
};

// The handshake message out of its records: complete, or nothing yet.
Result<std::optional<std::string>> join_records(std::string_view bytes) {
  std::string message;
  while (true) {
    if (message.size() >= 4) {
      Cursor head{message};
      if (head.number(1) != kClientHelloType) return malformed("is another message");
      const size_t length = head.number(3);
      if (length > kMaxHelloBytes) return malformed("is too large");
      if (message.size() >= 4 + length) return message.substr(4, length);
    }
    if (bytes.size() < 5) break;
    Cursor record{bytes};
    const size_t type = record.number(1), major = record.number(1);
    record.number(1);
    const size_t length = record.number(2);
    if (type != kHandshakeRecord || major != 3)
      return malformed("is interrupted by another record");
    if (length == 0 || length > kMaxRecordBytes) return malformed("has a record of forbidden size");
    message += record.rest.substr(0, length);
    if (record.rest.size() < length) {
      bytes = {};
    } else {
      bytes = record.rest.substr(length);
    }
  }
  return std::nullopt;
}

Result<std::string> read_server_name(Cursor extension) {
  Cursor list = extension.vector(2);
  if (extension.failed || !extension.rest.empty()) return malformed("has a malformed server name");
  const size_t type = list.number(1);
  Cursor name = list.vector(2);
  if (list.failed || type != 0) return malformed("has a malformed server name");
  if (!list.rest.empty()) return malformed("names more than one server");
  std::string host = policy::normal_host(name.rest);
  if (host.empty()) return malformed("names a server that is no host name");
  return host;
}

Result<ClientHello> read_extensions(Cursor list) {
  ClientHello hello;
  std::vector<size_t> seen;
  while (!list.rest.empty()) {
    const size_t type = list.number(2);
    Cursor extension = list.vector(2);
    if (list.failed) return malformed("has a truncated extension");
    if (std::find(seen.begin(), seen.end(), type) != seen.end())
      return malformed("has an extension twice");
    if (seen.size() == kMaxExtensions) return malformed("has too many extensions");
    seen.push_back(type);
    if (type == kEncryptedHelloExtension) hello.has_encrypted_hello = true;
    if (type == kServerNameExtension) {
      GB_TRY(hello.server_name, read_server_name(extension));
    }
  }
  return hello;
}

Result<ClientHello> read_message(std::string_view message) {
  Cursor body{message};
  body.take(2 + 32);  // legacy_version, random
  body.vector(1);     // legacy_session_id
  body.vector(2);     // cipher_suites
  body.vector(1);     // legacy_compression_methods
  if (body.failed) return malformed("is truncated");
  if (body.rest.empty()) return ClientHello{};
  const Cursor extensions = body.vector(2);
  if (body.failed || !body.rest.empty()) return malformed("has bytes behind its end");
  return read_extensions(extensions);
}

bool is_method_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

// "… HTTP/1.1"
bool is_request_line(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t at = line.rfind(' ');
  return at != line.npos && line.substr(at + 1).starts_with("HTTP/");
}

}  // namespace

Opening classify(std::string_view bytes) {
  if (bytes.empty()) return Opening::kUndecided;
  if (bytes[0] == static_cast<char>(kHandshakeRecord)) {
    if (bytes.size() < 3) return Opening::kUndecided;
    return bytes[1] == 3 && static_cast<uint8_t>(bytes[2]) <= 4 ? Opening::kTls : Opening::kOther;
  }
  const size_t method = static_cast<size_t>(
      std::find_if_not(bytes.begin(), bytes.end(), is_method_char) - bytes.begin());
  if (method == 0 || method > 32) return Opening::kOther;
  if (method == bytes.size()) return Opening::kUndecided;
  if (bytes[method] != ' ') return Opening::kOther;
  const size_t end = bytes.find('\n');
  if (end == bytes.npos)
    return bytes.size() > kMaxRequestLine ? Opening::kOther : Opening::kUndecided;
  return is_request_line(bytes.substr(0, end)) ? Opening::kHttp : Opening::kOther;
}

Result<std::optional<ClientHello>> parse_client_hello(std::string_view bytes) {
  GB_TRY(const auto message, join_records(bytes));
  if (!message) {
    if (bytes.size() > kMaxHelloBytes) return malformed("is too large");
    return std::nullopt;
  }
  GB_TRY(auto hello, read_message(*message));
  return hello;
}

}  // namespace glovebox::egress
