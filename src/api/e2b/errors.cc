// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/errors.h"

#include <boost/json/object.hpp>

#include "base/text.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

constexpr const char* kRpcDetail = "rpc_code";

struct RestMapping {
  Code code;
  int status;
};
// Only what differs from the native table.
constexpr RestMapping kRest[] = {
    {Code::kSandboxEnded, 404},  {Code::kSandboxNotReady, 409}, {Code::kIsADirectory, 400},
    {Code::kNotADirectory, 400}, {Code::kUserUnknown, 401},     {Code::kCancelled, 499},
};

struct RpcMapping {
  Code code;
  std::string_view name;
};
constexpr RpcMapping kRpc[] = {
    {Code::kInvalidArgument, "invalid_argument"},     {Code::kInvalidPath, "invalid_argument"},
    {Code::kPayloadTooLarge, "resource_exhausted"},   {Code::kUnauthenticated, "unauthenticated"},
    {Code::kForbidden, "permission_denied"},          {Code::kNotFound, "not_found"},
    {Code::kExecutionNotFound, "not_found"},          {Code::kFileNotFound, "not_found"},
    {Code::kAlreadyExists, "already_exists"},         {Code::kFileExists, "already_exists"},
    {Code::kConflict, "failed_precondition"},         {Code::kNotADirectory, "invalid_argument"},
    {Code::kIsADirectory, "invalid_argument"},        {Code::kDirectoryNotEmpty, "failed_precondition"},
    {Code::kPermissionDenied, "permission_denied"},   {Code::kReadOnly, "permission_denied"},
    {Code::kTooManyLinks, "invalid_argument"},        {Code::kUserUnknown, "unauthenticated"},
    {Code::kWorkdirNotFound, "invalid_argument"},     {Code::kCommandNotFound, "invalid_argument"},
    {Code::kCommandNotExecutable, "invalid_argument"}, {Code::kArgumentsTooLong, "invalid_argument"},
    {Code::kProcessLimit, "resource_exhausted"},      {Code::kOpenFileLimit, "resource_exhausted"},
    {Code::kDiskFull, "resource_exhausted"},          {Code::kMemoryLimit, "resource_exhausted"},
    {Code::kCapacity, "resource_exhausted"},          {Code::kRateLimited, "resource_exhausted"},
    {Code::kSandboxNotFound, "unavailable"},          {Code::kSandboxNotReady, "unavailable"},
    {Code::kSandboxEnded, "unavailable"},             {Code::kUnavailable, "unavailable"},
    {Code::kTimeout, "deadline_exceeded"},            {Code::kCancelled, "canceled"},
    {Code::kUnsupported, "unimplemented"},            {Code::kRouteNotFound, "unimplemented"},
};

constexpr std::pair<std::string_view, int> kRpcStatus[] = {
    {"canceled", 499},          {"invalid_argument", 400},  {"deadline_exceeded", 504}, {"not_found", 404},
    {"already_exists", 409},    {"permission_denied", 403}, {"resource_exhausted", 429}, {"failed_precondition", 400},
    {"aborted", 409},           {"out_of_range", 400},      {"unimplemented", 501},     {"unavailable", 503},
    {"unauthenticated", 401},
};

}  // namespace

bool is_gone(const Error& error) {
  return error.code == Code::kSandboxNotFound || error.code == Code::kSandboxEnded || error.code == Code::kSandboxNotReady;
}

int rest_status(const Error& error, bool in_sandbox) {
  if (in_sandbox && is_gone(error)) return 502;
  for (const RestMapping& mapping : kRest) {
    if (mapping.code == error.code) return mapping.status;
  }
  return info(error.code).http_status;
}

std::string rest_body(const Error& error, int status) {
  return json::to_text(boost::json::object{
      {"code", status}, {"message", utf8_lossy(error.message)}, {"error_code", info(error.code).name}});
}

Async<void> send_rest_error(http::Exchange& exchange, const Error& error, bool in_sandbox, http::Headers headers) {
  const int status = rest_status(error, in_sandbox);
  headers.emplace_back("Content-Type", "application/json");
  if (status == 429) {  // clients try again after this
    const auto wait = error.details.find("retry_after");
    headers.emplace_back("Retry-After", wait == error.details.end() ? "1" : wait->second);
  }
  co_return co_await exchange.response.send(status, std::move(headers), rest_body(error, status));
}

std::string_view rpc_code(const Error& error) {
  if (const auto own = error.details.find(kRpcDetail); own != error.details.end()) return own->second;
  for (const RpcMapping& mapping : kRpc) {
    if (mapping.code == error.code) return mapping.name;
  }
  return "internal";
}

int rpc_status(std::string_view code) {
  for (const auto& [name, status] : kRpcStatus) {
    if (name == code) return status;
  }
  return 500;
}

std::string rpc_body(const Error& error) {
  return json::to_text(boost::json::object{{"code", rpc_code(error)}, {"message", utf8_lossy(error.message)}});
}

Error rpc_error(std::string_view rpc_name, std::string message) {
  return Error{Code::kConflict, std::move(message), {{kRpcDetail, std::string(rpc_name)}}};
}

Async<void> send_gone(http::Exchange& exchange, std::string_view wire_id, std::string message) {
  const boost::json::object body{{"sandboxId", wire_id}, {"message", utf8_lossy(message)}, {"code", 502}};
  co_return co_await exchange.response.send(502, {{"Content-Type", "application/json"}}, json::to_text(body));
}

}  // namespace glovebox::api::e2b
