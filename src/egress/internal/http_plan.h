// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/message.h"
#include "policy/address.h"

// What one HTTP request asks for, and how it is passed on, without I/O. Requests come from a
// sandbox.
namespace glovebox::egress {

// Where a connection of the sandbox goes by its own word: the address it dialled, or what a CONNECT
// on it named.
struct Destination {
  std::string host;  // set by CONNECT to a name; everything inside must name it, too
  std::optional<policy::Address> address;  // absent exactly when `host` is set
  uint16_t port = 0;
};

enum class RequestKind { kPlain, kWebSocket, kConnect };

struct RequestPlan {
  RequestKind kind = RequestKind::kPlain;
  std::string host;  // a normal host name; empty when the request names an address
  std::optional<policy::Address> address;  // that address
  uint16_t port = 0;
  std::string target;  // in origin form, as it is passed on
};

// Why a request is not even judged: it is malformed, can be read in two ways, or asks for something
// that is never passed on.
struct RequestRefusal {
  int status = 400;
  std::string rule;  // "protocol:http", "protocol:h2c"
  std::string reason;
  std::string host;  // when known
};
tl::expected<RequestPlan, RequestRefusal> plan_request(const http::Request& request,
                                                       const Destination& destination);

// The head as it is passed on: rebuilt from its parts, without hop-by-hop headers and those in
// X-Glovebox-*; one Host. `extra` is appended as it is ("Name: value\r\n").
std::string forward_head(const http::Request& request, const RequestPlan& plan,
                         std::string_view extra = {});

// "name", "name:port", "1.2.3.4", "1.2.3.4:80". Nothing for anything else.
struct Authority {
  std::string host;
  std::optional<policy::Address> address;
  std::optional<uint16_t> port;
};
std::optional<Authority> parse_authority(std::string_view text);

}  // namespace glovebox::egress
