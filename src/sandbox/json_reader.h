// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "sandbox/service.h"

namespace glovebox::sandbox::codec {
namespace json = boost::json;

json::object to_json(const StringMap& map);
// `code`: what a fault in it is. kAgentProtocol: the text is hostile.
Result<json::object> parse(std::string_view text, Code code);
json::object limits_to_json(const runtime::Limits& limits);
Result<runtime::Limits> read_limits(const json::object& document);  // its `limits`

// Reads fields of one object; remembers the first thing that is wrong. Absent fields keep their default.
class Reader {
 public:
  Reader(const json::object& object, Code code) : object_(object), code_(code) {}

  Reader& text(std::string_view name, std::string* out) {
    const auto* v = find(name);
    if (v == nullptr) return *this;
    if (const auto* s = v->if_string()) {
      out->assign(s->data(), s->size());
    } else if (const auto* o = v->if_object(); o != nullptr && o->contains("b64") && o->at("b64").is_string()) {
      auto bytes = base64_decode(std::string_view(o->at("b64").get_string()));
      if (!bytes) return bad(name);
      *out = std::move(*bytes);
    } else {
      bad(name);
    }
    return *this;
  }
  Reader& text(std::string_view name, std::optional<std::string>* out) {
    if (find(name) == nullptr) return *this;
    return text(name, &out->emplace());
  }
  template <class N>
    requires std::is_integral_v<N>
  Reader& number(std::string_view name, N* out) {
    const auto* v = find(name);
    if (v == nullptr) return *this;
    boost::system::error_code ec;
    *out = v->to_number<N>(ec);
    return ec ? bad(name) : *this;
  }
  template <class N>
  Reader& number(std::string_view name, std::optional<N>* out) {
    if (find(name) == nullptr) return *this;
    return number(name, &out->emplace());
  }
  Reader& real(std::string_view name, double* out) {
    const auto* v = find(name);
    if (v == nullptr) return *this;
    boost::system::error_code ec;
    *out = v->to_number<double>(ec);
    return ec ? bad(name) : *this;
  }
  Reader& boolean(std::string_view name, bool* out) {
    const auto* v = find(name);
    if (v == nullptr) return *this;
    if (!v->is_bool()) return bad(name);
    *out = v->get_bool();
    return *this;
  }
  Reader& map(std::string_view name, StringMap* out) {
    const auto* v = find(name);
    if (v == nullptr) return *this;
    if (!v->is_object()) return bad(name);
    for (const auto& [key, value] : v->get_object()) {
      if (!value.is_string()) return bad(name);
      (*out)[std::string(key)] = std::string(value.get_string());
    }
    return *this;
  }
  Reader& list(std::string_view name, std::vector<std::string>* out) {
    const auto* v = find(name);
    if (v == nullptr) return *this;
    if (!v->is_array()) return bad(name);
    for (const auto& item : v->get_array()) {
      json::object wrapped{{"x", item}};
      std::string text_value;
      Reader inner(wrapped, code_);
      inner.text("x", &text_value);
      if (inner.wrong_) return bad(name);
      out->push_back(std::move(text_value));
    }
    return *this;
  }
  const json::object* object(std::string_view name) {
    const auto* v = find(name);
    if (v == nullptr) return nullptr;
    if (!v->is_object()) bad(name);
    return v->if_object();
  }
  const json::array* array(std::string_view name) {
    const auto* v = find(name);
    if (v == nullptr) return nullptr;
    if (!v->is_array()) bad(name);
    return v->if_array();
  }
  Result<void> done() const {
    if (wrong_) return fail(code_, "field '" + *wrong_ + "' is wrong");
    return {};
  }

 private:
  const json::value* find(std::string_view name) const {
    const auto* v = object_.if_contains(json::string_view(name.data(), name.size()));
    return v == nullptr || v->is_null() ? nullptr : v;
  }
  Reader& bad(std::string_view name) {
    if (!wrong_) wrong_ = std::string(name);
    return *this;
  }

  const json::object& object_;
  Code code_;
  std::optional<std::string> wrong_;
};

}  // namespace glovebox::sandbox::codec
