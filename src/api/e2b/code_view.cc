// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/code_view.h"

#include <algorithm>
#include <boost/json.hpp>

#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using Kind = code::Event::Kind;

void append_unit(std::string& out, uint32_t unit) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[unit >> shift & 15];
}

void append_code_point(std::string& out, uint32_t point) {
  if (point < 0x10000) return append_unit(out, point);
  append_unit(out, 0xd800 + ((point - 0x10000) >> 10));
  append_unit(out, 0xdc00 + ((point - 0x10000) & 0x3ff));
}

// The repr of a plain string is shown without its quotes.
std::string without_quotes(std::string_view text) {
  const bool is_quoted = text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
                         text.back() == text.front();
  return std::string(is_quoted ? text.substr(1, text.size() - 2) : text);
}

constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
    {"text/html", "html"},
    {"text/markdown", "markdown"},
    {"image/svg+xml", "svg"},
    {"image/png", "png"},
    {"image/jpeg", "jpeg"},
    {"application/pdf", "pdf"},
    {"text/latex", "latex"},
    {"application/json", "json"},
    {"application/javascript", "javascript"},
    {"data", "data"},
    {"chart", "chart"}};

bj::object result_view(const code::Event& event) {
  bj::object out{{"type", "result"}, {"is_main_result", event.is_main}};
  bj::object extra;
  for (const auto& [key, value] : event.data) {
    const std::string_view name(key);
    const auto* known = std::ranges::find(kKeys, name, [](const auto& pair) { return pair.first; });
    if (name == "text/plain" && value.is_string()) {
      out["text"] = without_quotes(value.get_string());
    } else if (known != std::end(kKeys)) {
      out[known->second] = value;
    } else {
      extra[name] = value;
    }
  }
  if (!extra.empty()) out["extra"] = std::move(extra);
  return out;
}

bj::object view(const code::Event& event, WallTime now) {
  switch (event.kind) {
    case Kind::kStart:
      return {{"type", "number_of_executions"}, {"execution_count", event.count}};
    case Kind::kStdout:
      return {{"type", "stdout"}, {"text", event.text}, {"timestamp", iso_time(now)}};
    case Kind::kStderr:
      return {{"type", "stderr"}, {"text", event.text}, {"timestamp", iso_time(now)}};
    case Kind::kResult:
      return result_view(event);
    case Kind::kError:
      return {{"type", "error"},
              {"name", event.name},
              {"value", event.value},
              {"traceback", event.traceback}};
    case Kind::kKeepalive:
      return {{"type", "keepalive"}};
    case Kind::kEnd:
      break;
  }
  return {{"type", "end_of_execution"}};
}

}  // namespace

std::string ascii_json(std::string_view json) {
  std::string valid;
  if (!is_utf8(json)) json = valid = utf8_lossy(json);
  std::string out;
  out.reserve(json.size());
  for (size_t i = 0; i < json.size();) {
    const auto lead = static_cast<unsigned char>(json[i]);
    if (lead < 0x80) {
      out += json[i++];
      continue;
    }
    const size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    uint32_t point = lead & (0x3f >> more);
    for (size_t k = 1; k <= more; ++k)
      point = point << 6 | (static_cast<unsigned char>(json[i + k]) & 0x3f);
    append_code_point(out, point);
    i += more + 1;
  }
  return out;
}

std::string event_line(const code::Event& event, WallTime now) {
  return ascii_json(json::to_text(view(event, now))) + "\n";
}

}  // namespace glovebox::api::e2b
