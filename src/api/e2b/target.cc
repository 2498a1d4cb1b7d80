// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/target.h"

#include <algorithm>

#include "api/e2b/names.h"
#include "api/preview/address.h"
#include "base/text.h"

namespace glovebox::api::e2b {
namespace {

constexpr size_t kMinIdBytes = 8;

bool is_wire_id(std::string_view text) {
  return text.size() >= kMinIdBytes && text.starts_with("sb") && std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
         });
}

std::optional<std::string> either_header(const http::Request& request, std::string_view suffix) {
  for (const char* vendor : {"E2b", "Novita"}) {
    if (auto value = request.header(vendor + std::string(suffix))) return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Target> target_of_host(const http::Request& request) {
  const std::string host = preview::host_name(request.header("Host").value_or(""));
  const size_t dot = host.find('.');
  if (dot == host.npos) return std::nullopt;
  const auto parts = split(std::string_view(host).substr(0, dot), '-');
  if (parts.size() < 2 || parts.size() > 3 || !is_wire_id(parts[1])) return std::nullopt;
  const auto port = preview::parse_port(parts[0]);
  if (!port) return std::nullopt;
  return Target{native_id(parts[1]), *port};
}

bool is_preflight(const http::Request& request) {
  if (request.method != "OPTIONS") return false;
  const auto& headers = request.headers;
  return http::header_lists(headers, "Access-Control-Request-Headers", "e2b-sandbox-id") ||
         http::header_lists(headers, "Access-Control-Request-Headers", "x-access-token");
}

bool has_marks(const http::Request& request) {
  if (either_header(request, "-Sandbox-Id") || either_header(request, "-Sandbox-Port")) return true;
  if (request.path == "/files" && request.query_value("signature")) return true;
  return request.header("X-Access-Token").has_value() || is_preflight(request);
}

Result<Target> named_target(const http::Request& request) {
  if (auto found = target_of_host(request)) return *found;
  const auto id = either_header(request, "-Sandbox-Id"), port = either_header(request, "-Sandbox-Port");
  if (!id && !port) return fail(Code::kNotFound, "no sandbox is named");
  if (!id || !port) return fail(Code::kInvalidArgument, "missing header: send both the sandbox's id and its port");
  const auto number = preview::parse_port(*port);
  if (!number) return fail(Code::kInvalidArgument, "the port header must be a number from 1 to 65535");
  return Target{native_id(*id), *number};
}

}  // namespace glovebox::api::e2b
