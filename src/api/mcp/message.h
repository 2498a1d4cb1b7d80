// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "base/result.h"

// JSON-RPC 2.0 as the Model Context Protocol restricts it.
namespace glovebox::api::mcp {

inline constexpr size_t kMaxMessageBytes = 8 << 20;
inline constexpr size_t kMaxBatch = 32;

// Revisions of the protocol, by date. Clients that speak another one get the newest.
enum class Version { k2025_03_26, k2025_06_18, k2025_11_25 };
std::string_view version_name(Version version);
std::optional<Version> version_from_name(std::string_view name);
inline constexpr Version kNewestVersion = Version::k2025_11_25;
// What a request means that names no version.
inline constexpr Version kAssumedVersion = Version::k2025_03_26;

// A fault of the protocol; failures of tools are results.
struct RpcError {
  static constexpr int kParse = -32700, kInvalidRequest = -32600, kMethodNotFound = -32601, kInvalidParams = -32602,
                       kServer = -32000;
  int code = kServer;
  std::string message;
  boost::json::value data = nullptr;  // null: none
  boost::json::value id = nullptr;    // of the message at fault, when it could be read
};
// One of our errors where the protocol has no word of its own; its code, advice and details are the data.
RpcError rpc_error(const Error& error);

struct Message {
  enum class Kind { kRequest, kNotification, kResponse };
  Kind kind = Kind::kNotification;
  boost::json::value id;  // of requests: a string or an integer
  std::string method;     // not of responses
  boost::json::object params;
};

struct Incoming {
  std::vector<Message> messages;  // at least one
  bool is_batch = false;
};
// What a client sent. Numbers, depth and duplicate names as in json::parse().
tl::expected<Incoming, RpcError> parse_incoming(std::string_view text);

std::string response_text(const boost::json::value& id, boost::json::object result);
std::string error_text(const RpcError& error);
std::string notification_text(std::string_view method, boost::json::object params);

}  // namespace glovebox::api::mcp
