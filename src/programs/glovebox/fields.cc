// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/fields.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/text.h"

namespace glovebox::cli {
namespace json = boost::json;
namespace {

const json::value* find(const json::value& value, std::string_view path) {
  const json::value* at = &value;
  for (const std::string& name : split(path, '.')) {
    at = field(*at, name);
    if (at == nullptr) return nullptr;
  }
  return at;
}

}  // namespace

const json::value* field(const json::value& value, std::string_view name) {
  const auto* object = value.if_object();
  const auto* found = object == nullptr ? nullptr : object->if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string text(const json::value& value, std::string_view path) {
  const auto* found = find(value, path);
  const auto* string = found == nullptr ? nullptr : found->if_string();
  return string == nullptr ? std::string() : std::string(string->data(), string->size());
}

double real(const json::value& value, std::string_view path) {
  const auto* found = find(value, path);
  if (found == nullptr) return 0;
  if (const auto* integer = found->if_int64()) return static_cast<double>(*integer);
  if (const auto* large = found->if_uint64()) return static_cast<double>(*large);
  const auto* floating = found->if_double();
  return floating == nullptr ? 0 : *floating;
}

int64_t number(const json::value& value, std::string_view path) {
  const auto* found = find(value, path);
  const auto* integer = found == nullptr ? nullptr : found->if_int64();
  return integer != nullptr ? *integer : static_cast<int64_t>(real(value, path));
}

bool flag(const json::value& value, std::string_view path) {
  const auto* found = find(value, path);
  const auto* boolean = found == nullptr ? nullptr : found->if_bool();
  return boolean != nullptr && *boolean;
}

const json::array& items(const json::value& value, std::string_view name) {
  static const json::array none;
  const auto* found = field(value, name);
  const auto* array = found == nullptr ? nullptr : found->if_array();
  return array == nullptr ? none : *array;
}

std::string bytes(const json::value& value, std::string_view name) {
  const std::string encoded = std::string(name) + "_b64";
  if (field(value, encoded) != nullptr) return base64_decode(text(value, encoded)).value_or("");
  return text(value, name);
}

}  // namespace glovebox::cli
