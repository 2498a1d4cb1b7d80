// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "api/e2b/daemon_call.h"

// The Connect protocol with the JSON codec.
namespace glovebox::api::e2b {

constexpr size_t kMaxMessage = 16 << 20;

// Fields as protobuf's JSON has them: camelCase or snake_case, integers also as text, bytes as standard or URL base64. Unknown fields
// are ignored; a field of the wrong type is kInvalidArgument.
class Message {
 public:
  explicit Message(const boost::json::value& value);
  Result<std::string> text(std::string_view name) const;  // empty when absent
  Result<std::optional<int64_t>> integer(std::string_view name) const;
  Result<std::optional<bool>> boolean(std::string_view name) const;
  Result<std::optional<std::string>> bytes(std::string_view name) const;
  Result<std::vector<std::string>> texts(std::string_view name) const;
  Result<sandbox::StringMap> map(std::string_view name) const;
  // Absent: nothing. Keep the message it came from.
  Result<std::optional<Message>> message(std::string_view name) const;

 private:
  const boost::json::value* find(std::string_view name) const;
  const boost::json::object* object_;
};

// One message in a stream: a byte of flags, the length in four, big endian, the payload.
std::string envelope(std::string_view payload, bool is_end = false);
// The payload of a body that is exactly one envelope. kInvalidArgument.
Result<std::string> open_envelope(std::string_view body);

// The answer to a call that streams. The first error after begin() cuts the connection.
class StreamAnswer {
 public:
  explicit StreamAnswer(DaemonCall& call) : call_(call) {}
  Async<void> begin();
  Async<void> send(std::string payload);  // one message
  Async<void> write(std::string envelopes);  // several, already in envelopes
  Async<void> end();
  Async<void> end_with(const Error& error);
  bool has_begun() const { return call_.exchange.response.head_sent(); }

 private:
  DaemonCall& call_;
};

// Milliseconds of Connect-Timeout-Ms; 0: none.
sandbox::Millis client_timeout(const http::Request& request);
// Seconds of Keepalive-Ping-Interval, within reason.
sandbox::Millis keepalive_interval(const http::Request& request);

using Unary = Async<boost::json::value> (*)(DaemonCall&, const Message&);
using Streaming = Async<void> (*)(DaemonCall&, const Message&, StreamAnswer&);
struct Method {
  std::string_view path;
  Unary unary = nullptr;
  Streaming streaming = nullptr;
};
const std::vector<Method>& process_methods();
const std::vector<Method>& filesystem_methods();

}  // namespace glovebox::api::e2b
