// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/http_answer.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "base/text.h"
#include "http/message.h"

namespace glovebox::egress {
namespace {

using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

std::string pairs_text(const Pairs& pairs) {
  std::string out;
  for (const auto& [name, value] : pairs) {
    if (!out.empty()) out += ",";
    append_json_string(out, name);
    out += ":";
    append_json_string(out, value);
  }
  return out;
}

std::string error_text(const Pairs& pairs) {
  const std::string fields = pairs_text(pairs);
  return "{\"error\":{" + fields + "}," + fields + "}\n";
}

}  // namespace

std::string denial_body(std::string_view host, const policy::Verdict& verdict) {
  return error_text({{"code", "egress_denied"},
                     {"host", host},
                     {"rule", verdict.rule},
                     {"message", verdict.reason},
                     {"how_to_allow", verdict.how_to_allow}});
}

std::string failure_body(std::string_view host, std::string_view reason) {
  return error_text({{"code", "upstream_unreachable"}, {"host", host}, {"message", reason}});
}

std::string answer_text(int status, std::string_view body, bool is_head, bool keeps_alive) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " +
                    std::string(http::reason_phrase(status)) + "\r\n";
  out += "Content-Type: application/json\r\nCache-Control: no-store\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n";
  out += keeps_alive ? "\r\n" : "Connection: close\r\n\r\n";
  if (!is_head) out += body;
  return out;
}

std::string chunk(std::string_view content) {
  char size[32];
  const int n = std::snprintf(size, sizeof size, "%zx\r\n", content.size());
  std::string out(size, static_cast<size_t>(n));
  out += content;
  return out + "\r\n";
}

}  // namespace glovebox::egress
