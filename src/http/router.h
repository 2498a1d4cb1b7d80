// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/server.h"

namespace glovebox::http {

using Params = std::map<std::string, std::string, std::less<>>;
using RouteHandler = std::function<Awaitable<void>(Exchange&, const Params&)>;

struct RouteOptions {
  // Also take request bodies with a Content-Encoding (a proxy passes them on); otherwise they are
  // refused with 415.
  bool any_encoding = false;
};

// A table of method + pattern. A pattern is "/v1/sandboxes/{id}/files"; "{name}" takes one segment,
// "{name...}" as the last segment takes the rest (also none). Literal beats {name} beats {name...}.
// Segments are percent-decoded after the split at '/', so "%2F" in a name stays inside it; repeated
// and trailing slashes do not count. HEAD is served by GET; method "*" is any.
class Router {
 public:
  Router();
  ~Router();
  Router(Router&&) noexcept;
  Router& operator=(Router&&) noexcept;

  // Asserts on a pattern that is malformed or already there.
  void add(std::string_view method, std::string_view pattern, RouteHandler handler,
           RouteOptions options = {});

  // Answers the exchange by its route, or with route_not_found (404), method_not_allowed (405 with
  // Allow), invalid_argument (400: bad percent-encoding; 415: encoded body).
  Awaitable<void> handle(Exchange& exchange) const;

  struct Route {
    std::string method;
    std::string pattern;
  };
  std::vector<Route> routes() const;  // in the order they were added

  struct Match {
    const RouteHandler* handler = nullptr;
    std::string pattern;  // for metrics: a bounded set of names
    Params params;
    RouteOptions options;
  };
  // kRouteNotFound; kMethodNotAllowed with details.allow ("GET, HEAD"); kInvalidArgument for a bad
  // percent-encoding.
  Result<Match> match(std::string_view method, std::string_view path) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace glovebox::http
