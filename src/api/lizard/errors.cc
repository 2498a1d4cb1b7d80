// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/errors.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::api::lizard {
namespace {

struct Mapping {
  Code code;
  int status;
  std::string_view name;  // empty: the code's own wire name in capitals
};

// Only what differs from the native table. 403 stands for a bad key here, so a file that a user inside may not touch is 400.
constexpr Mapping kMappings[] = {
    {Code::kTemplateNotFound, 400, "TEMPLATE_NOT_FOUND"},
    {Code::kPermissionDenied, 400, ""},
    {Code::kReadOnly, 400, ""},
    {Code::kCapacity, 429, "SANDBOX_LIMIT_REACHED"},
    {Code::kRateLimited, 429, "SANDBOX_RATE_LIMITED"},
    {Code::kSandboxNotReady, 409, "SANDBOX_NOT_RUNNING"},
    {Code::kSandboxEnded, 404, "SANDBOX_NOT_FOUND"},
    {Code::kCancelled, 400, ""},
};

std::string capitals(std::string_view name) {
  std::string out(name);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

void add_number(boost::json::object& body, std::string_view key, const Error& error, const std::string& detail) {
  const auto found = error.details.find(detail);
  if (found == error.details.end()) return;
  if (const auto number = parse_int(found->second)) body[key] = *number;
}

void add_limit(boost::json::object& body, const Error& error) {
  if (error.code == Code::kCapacity) {
    add_number(body, "limit", error, "size");
    add_number(body, "running", error, "use");
    if (!error.details.contains("lizard_code")) body["unit"] = "sandboxes";
  }
  body["retryAfterS"] = 1;
  add_number(body, "retryAfterS", error, "retry_after");
}

}  // namespace

WireError wire_error(const Error& error) {
  WireError out{info(error.code).http_status, {}};
  std::string name = capitals(info(error.code).name);
  for (const Mapping& mapping : kMappings) {
    if (mapping.code != error.code) continue;
    out.status = mapping.status;
    if (!mapping.name.empty()) name = mapping.name;
  }
  if (const auto own = error.details.find("lizard_code"); own != error.details.end()) name = own->second;
  out.body = {{"error", utf8_lossy(error.message)}, {"code", name}};
  if (out.status == 429) add_limit(out.body, error);
  return out;
}

Error refusal(Code code, std::string lizard_code, std::string message) {
  return Error{code, std::move(message), {{"lizard_code", std::move(lizard_code)}}};
}

}  // namespace glovebox::api::lizard
