// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/json.h"

#include <boost/json/src.hpp>

#include "base/text.h"

namespace glovebox::agent {
namespace {

constexpr size_t kMaxDepth = 16;

tl::unexpected<Error> wrong(std::string_view name, std::string_view wanted) {
  return fail(Code::kInvalidArgument, std::string(name) + ": " + std::string(wanted));
}

json::string_view view(std::string_view text) {
  return {text.data(), text.size()};
}

json::object error_object(const Error& error) {
  const CodeInfo& known = info(error.code);
  return {{"code", view(known.name)}, {"message", utf8_lossy(error.message)}};
}

}  // namespace

Result<json::object> parse_object(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  json::error_code error;
  json::value value = json::parse(view(text), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, "not JSON: " + error.message());
  if (!value.is_object()) return fail(Code::kInvalidArgument, "not a JSON object");
  return std::move(value.get_object());
}

std::string to_text(const json::object& object) {
  return json::serialize(object);
}

json::value json_bytes(std::string_view bytes) {
  if (is_utf8(bytes)) return json::string(view(bytes));
  return json::object{{"b64", base64_encode(bytes)}};
}

std::optional<std::string> bytes_of(const json::value& value) {
  if (const json::string* text = value.if_string()) return std::string(text->data(), text->size());
  const json::object* object = value.if_object();
  if (object == nullptr) return std::nullopt;
  const json::value* coded = object->if_contains("b64");
  if (coded == nullptr || !coded->is_string()) return std::nullopt;
  const json::string& text = coded->get_string();
  return base64_decode(std::string_view(text.data(), text.size()));
}

const json::value* find_field(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(view(name));
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::string> text_field(const json::object& object, std::string_view name,
                               std::string_view fallback) {
  const json::value* value = find_field(object, name);
  if (value == nullptr) return std::string(fallback);
  auto bytes = bytes_of(*value);
  if (!bytes) return wrong(name, "must be a string or {\"b64\": …}");
  if (bytes->find('\0') != std::string::npos) {
    return fail(Code::kInvalidArgument, std::string(name) + ": holds a NUL byte");
  }
  return *std::move(bytes);
}

Result<int64_t> int_field(const json::object& object, std::string_view name, int64_t fallback,
                          int64_t low, int64_t high) {
  const json::value* value = find_field(object, name);
  if (value == nullptr) return fallback;
  json::error_code error;
  const auto number = value->to_number<int64_t>(error);
  if (error || number < low || number > high) {
    return wrong(
        name, "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return number;
}

Result<bool> bool_field(const json::object& object, std::string_view name, bool fallback) {
  const json::value* value = find_field(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return wrong(name, "must be true or false");
  return value->get_bool();
}

std::string error_response(const Error& error) {
  json::object object = error_object(error);
  object["ok"] = false;
  return to_text(object);
}

std::string failed_payload(const Error& error) {
  return to_text(error_object(error));
}

}  // namespace glovebox::agent
