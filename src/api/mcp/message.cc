// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/message.h"

#include <array>
#include <boost/json.hpp>

#include "base/text.h"
#include "http/json.h"
#include "http/message.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxMethodBytes = 128;

struct VersionName {
  Version version;
  std::string_view name;
};
constexpr std::array kVersions{VersionName{Version::k2025_03_26, "2025-03-26"}, VersionName{Version::k2025_06_18, "2025-06-18"},
                               VersionName{Version::k2025_11_25, "2025-11-25"}};

bool is_id(const bj::value& id) {
  return id.is_int64() || (id.is_string() && id.get_string().size() <= kMaxIdBytes);
}

tl::unexpected<RpcError> invalid(std::string message, const bj::value& id = nullptr) {
  return tl::unexpected(RpcError{RpcError::kInvalidRequest, std::move(message), nullptr, is_id(id) ? id : bj::value(nullptr)});
}

const bj::value& member(const bj::object& object, std::string_view name) {
  static const bj::value kNone = nullptr;
  const auto* found = object.if_contains(name);
  return found != nullptr ? *found : kNone;
}

tl::expected<Message, RpcError> read_message(const bj::value& value) {
  const auto* object = value.if_object();
  if (object == nullptr) return invalid("a message must be an object");
  const bj::value &id = member(*object, "id"), &version = member(*object, "jsonrpc"), &method = member(*object, "method");
  if (!version.is_string() || version.get_string() != "2.0") return invalid("jsonrpc: must be \"2.0\"", id);
  if (object->contains("id") && !is_id(id)) return invalid("id: must be a string of at most 256 bytes or an integer");
  Message out;
  out.id = id;
  if (method.is_null()) {
    const bool answers = object->contains("result") != object->contains("error");
    if (!answers || !object->contains("id"))
      return invalid("a message must have a method, or an id and either a result or an error", id);
    out.kind = Message::Kind::kResponse;
    return out;
  }
  if (!method.is_string() || method.get_string().empty() || method.get_string().size() > kMaxMethodBytes) {
    return invalid("method: must be a string of 1 to 128 bytes", id);
  }
  out.method = std::string(method.get_string());
  out.kind = object->contains("id") ? Message::Kind::kRequest : Message::Kind::kNotification;
  if (const bj::value& params = member(*object, "params"); params.is_object()) {
    out.params = params.get_object();
  } else if (!params.is_null()) {
    return invalid("params: must be an object", id);
  }
  return out;
}

}  // namespace

std::string_view version_name(Version version) {
  for (const auto& known : kVersions) {
    if (known.version == version) return known.name;
  }
  return kVersions.back().name;
}

std::optional<Version> version_from_name(std::string_view name) {
  for (const auto& known : kVersions) {
    if (known.name == name) return known.version;
  }
  return std::nullopt;
}

RpcError rpc_error(const Error& error) {
  RpcError out{RpcError::kServer, error.message, nullptr, nullptr};
  if (auto body = json::parse_object(http::error_body(error))) out.data = std::move(body->as_object()["error"]);
  return out;
}

tl::expected<Incoming, RpcError> parse_incoming(std::string_view text) {
  if (text.size() > kMaxMessageBytes) return invalid("the message is longer than " + std::to_string(kMaxMessageBytes) + " bytes");
  const auto value = json::parse(text);
  if (!value) return tl::unexpected(RpcError{RpcError::kParse, value.error().message, nullptr, nullptr});
  Incoming out;
  const auto* items = value->if_array();
  out.is_batch = items != nullptr;
  if (out.is_batch && (items->empty() || items->size() > kMaxBatch)) {
    return invalid("a batch must have 1 to " + std::to_string(kMaxBatch) + " messages");
  }
  const size_t count = out.is_batch ? items->size() : 1;
  for (size_t i = 0; i < count; ++i) {
    auto message = read_message(out.is_batch ? (*items)[i] : *value);
    if (!message) return tl::unexpected(std::move(message).error());
    out.messages.push_back(std::move(*message));
  }
  return out;
}

std::string response_text(const bj::value& id, bj::object result) {
  return json::to_text(bj::object{{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}});
}

std::string error_text(const RpcError& error) {
  bj::object body{{"code", error.code}, {"message", utf8_lossy(error.message)}};
  if (!error.data.is_null()) body["data"] = error.data;
  return json::to_text(bj::object{{"jsonrpc", "2.0"}, {"id", error.id}, {"error", std::move(body)}});
}

std::string notification_text(std::string_view method, bj::object params) {
  return json::to_text(bj::object{{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}});
}

}  // namespace glovebox::api::mcp
