// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/api_client.h"

#include <boost/json/object.hpp>

#include "base/text.h"
#include "http/json.h"
#include "programs/glovebox/fields.h"

namespace glovebox::cli {
namespace {

constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr size_t kMaxMessageBytes = 4 << 20;

Code code_of_status(int status) {
  if (status == 401) return Code::kUnauthenticated;
  if (status == 403) return Code::kForbidden;
  if (status == 404) return Code::kRouteNotFound;
  if (status == 429) return Code::kRateLimited;
  if (status == 502 || status == 503 || status == 504) return Code::kUnavailable;
  return status >= 500 ? Code::kInternal : Code::kInvalidArgument;
}

Error unreachable(Error error, const std::string& url) {
  if (error.code == Code::kUnavailable)
    error.message = "cannot reach the daemon at " + url + ": " + error.message;
  return error;
}

}  // namespace

Error error_of_answer(int status, const std::string& body, const std::string& request_id) {
  Error error;
  const auto parsed = json::parse(body);
  const auto* inner = parsed ? field(*parsed, "error") : nullptr;
  if (inner == nullptr || text(*inner, "code").empty()) {
    error.code = code_of_status(status);
    error.message = "the server answered " + std::to_string(status) +
                    " without an error of Glovebox; is it one?";
  } else {
    error.code = code_from_name(text(*inner, "code"));
    error.message = text(*inner, "message");
    const auto* details = field(*inner, "details");
    if (details != nullptr && details->is_object()) {
      for (const auto& entry : details->get_object())
        error.details[entry.key()] = text(*details, entry.key());
    }
  }
  if (!request_id.empty()) error.details["request_id"] = request_id;
  return error;
}

Result<ApiClient> ApiClient::make(const std::string& url, std::string key) {
  ApiClient client;
  GB_TRY(client.base_, http::parse_url(url));
  client.url_ = url;
  client.key_ = std::move(key);
  if (client.key_.find_first_of("\r\n") != std::string::npos)
    return fail(Code::kInvalidArgument, "the key holds a line break");
  return client;
}

http::Headers ApiClient::headers() const {
  http::Headers out{{"User-Agent", "glovebox-cli"}};
  if (!key_.empty()) out.emplace_back("Authorization", "Bearer " + key_);
  return out;
}

std::string ApiClient::target(const std::string& path) const {
  std::string prefix = base_.target;
  while (!prefix.empty() && prefix.back() == '/') prefix.pop_back();
  return prefix + path;
}

Async<std::unique_ptr<http::Connection>> ApiClient::connect(
    std::chrono::milliseconds patience) const {
  http::ClientOptions options;
  options.idle_timeout = patience;
  const std::string url = url_;
  auto connection = co_await http::Connection::connect(base_, options);
  if (!connection) co_return fail(unreachable(std::move(connection).error(), url));
  co_return std::move(*connection);
}

Async<http::ResponseHead> ApiClient::check(http::Connection& connection, http::ResponseHead head) {
  if (head.status >= 200 && head.status < 300) co_return head;
  std::string body;
  while (body.size() < kMaxErrorBytes) {
    auto more = co_await connection.read_some();
    if (!more || more->empty()) break;
    body += *more;
  }
  co_return fail(error_of_answer(head.status, body, head.header("X-Request-Id").value_or("")));
}

Async<boost::json::value> ApiClient::call(std::string method, std::string path,
                                          std::optional<boost::json::value> body,
                                          std::chrono::milliseconds patience) const {
  GB_CO_TRY(auto connection, co_await connect(patience));
  auto sent = headers();
  std::string content;
  if (body) {
    content = json::to_text(*body);
    sent.emplace_back("Content-Type", "application/json");
  }
  const std::string full = target(path);
  auto response = co_await connection->request(method, full, std::move(sent), std::move(content),
                                               kMaxAnswerBytes);
  if (!response) co_return fail(unreachable(std::move(response).error(), url_));
  const auto& head = response->head;
  if (head.status < 200 || head.status >= 300) {
    co_return fail(
        error_of_answer(head.status, response->body, head.header("X-Request-Id").value_or("")));
  }
  auto value = json::parse(response->body);
  if (!value)
    co_return fail(Code::kCorrupt, "the server's answer is not JSON: " + value.error().message);
  co_return std::move(*value);
}

Async<std::unique_ptr<http::WebSocket>> ApiClient::websocket(std::string path) const {
  http::Url url = base_;
  url.target = target(path);
  http::WebSocketOptions options;
  options.max_message_bytes = kMaxMessageBytes;
  auto socket = co_await http::connect_websocket(std::move(url), headers(), options);
  if (socket) co_return std::move(*socket);
  const auto& details = socket.error().details;
  const auto status = details.find("status");
  if (status == details.end()) co_return fail(unreachable(std::move(socket).error(), url_));
  const auto body = details.find("body");
  co_return fail(error_of_answer(static_cast<int>(parse_int(status->second).value_or(0)),
                                 body == details.end() ? "" : body->second, ""));
}

}  // namespace glovebox::cli
