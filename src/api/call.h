// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "http/router.h"
#include "http/server.h"
#include "sandbox/service.h"
#include "tenant/keys.h"

// What every dialect does around its calls: find out who asks, give the request an id, turn errors into answers.
namespace glovebox::api {

struct Call {
  http::Exchange& exchange;
  const http::Params& params;
  sandbox::Caller caller;

  const http::Request& request() const { return exchange.request; }
  const std::string& param(const std::string& name) const { return params.find(name)->second; }
  http::Headers headers() const { return {{"X-Request-Id", caller.request_id}}; }
  Async<void> send_json(int status, std::string json) const;
};

using Action = std::function<Async<void>(Call&)>;

// The key of `Authorization: Bearer …` or `X-API-Key: …`; empty when there is none. Also in the form "e2b_<the key in hex digits>".
std::string key_of(const http::Request& request);

// Adds a route whose callers must have a valid key. An error of the action becomes its JSON answer, or cuts the connection
// when the answer had begun.
void add_route(http::Router& router, const tenant::Keys& keys, std::string_view method, std::string_view pattern, Action action);

// How an error of an action is answered: the default is http::ResponseWriter::send_error.
using ErrorSender = std::function<Async<void>(http::Exchange&, const Error&, http::Headers)>;
void add_route(http::Router& router, const tenant::Keys& keys, std::string_view method, std::string_view pattern, Action action,
               ErrorSender send_error);

// Query parameters, typed. Errors are kInvalidArgument and name the parameter.
Result<bool> query_bool(const http::Request& request, std::string_view name, bool otherwise);
Result<int64_t> query_int(const http::Request& request, std::string_view name, int64_t min, int64_t max, int64_t otherwise);
// Refuses parameters that are not in `allowed` or given twice; one that ends in '.' allows a prefix, in '*' repetition.
Result<void> check_query(const http::Request& request, std::initializer_list<std::string_view> allowed);

}  // namespace glovebox::api
