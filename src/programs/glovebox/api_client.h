// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "http/client.h"

namespace glovebox::cli {

// One daemon seen with one key. Calls are independent of each other; each has a connection of its
// own.
class ApiClient {
 public:
  static Result<ApiClient> make(const std::string& url, std::string key);

  // One JSON call; an answer that is no 2xx is its error (code, message, details;
  // details.request_id). `patience` is how long the daemon may be silent.
  Async<boost::json::value> call(
      std::string method, std::string path, std::optional<boost::json::value> body = {},
      std::chrono::milliseconds patience = std::chrono::minutes(5)) const;

  // For bodies that stream: a connection, the headers to send, and the target for `path`.
  Async<std::unique_ptr<http::Connection>> connect(std::chrono::milliseconds patience) const;
  http::Headers headers() const;
  std::string target(const std::string& path) const;
  // After Connection::finish(): the head again, or the answer's error.
  static Async<http::ResponseHead> check(http::Connection& connection, http::ResponseHead head);

  Async<std::unique_ptr<http::WebSocket>> websocket(std::string path) const;
  const std::string& url() const { return url_; }

 private:
  std::string url_, key_;
  http::Url base_;
};

// The error behind an answer of status `status`, also when its body is not one of ours.
Error error_of_answer(int status, const std::string& body, const std::string& request_id);

}  // namespace glovebox::cli
