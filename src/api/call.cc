// SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/random.h"

namespace glovebox::api {

Async<void> Call::send_json(int status, std::string json) const {
  auto h = headers();
  h.emplace_back("Content-Type", "application/json");
  co_return co_await exchange.response.send(status, std::move(h), std::move(json));
}

namespace {

// "e2b_" and the hex digits of a key are that key: clients of that protocol refuse to send any other form.
std::string plain_key(std::string key) {
  constexpr std::string_view kForm = "e2b_";
  if (!key.starts_with(kForm) || key.size() % 2 != 0) return key;
  std::string encoded;
  for (size_t i = kForm.size(); i < key.size(); i += 2) encoded += "%" + key.substr(i, 2);
  return http::percent_decode(encoded).value_or(std::move(key));
}

}  // namespace

std::string key_of(const http::Request& request) {
  if (auto key = request.header("X-API-Key")) return plain_key(std::move(*key));
  const auto authorization = request.header("Authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (!authorization || authorization->size() <= kBearer.size()) return {};
  if (!http::same_name(authorization->substr(0, kBearer.size()), kBearer)) return {};
  const size_t begin = std::min(authorization->find_first_not_of(' ', kBearer.size()), authorization->size());
  return plain_key(authorization->substr(begin));
}

namespace {

Awaitable<void> serve(const tenant::Keys& keys, const Action& action, const ErrorSender& send_error, http::Exchange& exchange,
                      const http::Params& params) {
  const std::string request_id = http::new_request_id();
  auto caller = keys.authenticate(key_of(exchange.request));
  Result<void> done;
  if (caller) {
    Call call{exchange, params, std::move(*caller)};
    call.caller.request_id = request_id;
    done = co_await action(call);
  } else {
    done = fail(caller.error());
  }
  if (done) co_return;
  if (info(done.error().code).fault == Fault::kPlatform) {
    log::warn("request.failed", {{"request", request_id}, {"method", exchange.request.method}, {"path", exchange.request.path},
                                 {"code", info(done.error().code).name}, {"message", done.error().message}});
  }
  if (exchange.response.head_sent()) {
    // Nobody else learns why: the client sees only that the answer is not whole.
    log::info("response.cut", {{"request", request_id}, {"method", exchange.request.method}, {"path", exchange.request.path},
                               {"code", info(done.error().code).name}, {"message", done.error().message}});
    exchange.response.abort();
    co_return;
  }
  http::Headers headers{{"X-Request-Id", request_id}};
  (void)co_await send_error(exchange, done.error(), std::move(headers));
}

}  // namespace

void add_route(http::Router& router, const tenant::Keys& keys, std::string_view method, std::string_view pattern, Action action) {
  add_route(router, keys, method, pattern, std::move(action),
            [](http::Exchange& exchange, const Error& error, http::Headers headers) -> Async<void> {
              return exchange.response.send_error(error, std::move(headers));
            });
}

void add_route(http::Router& router, const tenant::Keys& keys, std::string_view method, std::string_view pattern, Action action,
               ErrorSender send_error) {
  router.add(method, pattern,
             [&keys, action = std::move(action), send_error = std::move(send_error)](
                 http::Exchange& exchange, const http::Params& params) { return serve(keys, action, send_error, exchange, params); });
}

Result<bool> query_bool(const http::Request& request, std::string_view name, bool otherwise) {
  const auto value = request.query_value(name);
  if (!value) return otherwise;
  if (*value == "true" || *value == "1") return true;
  if (*value == "false" || *value == "0") return false;
  return fail(Code::kInvalidArgument, std::string(name) + ": must be true or false", {{"field", std::string(name)}});
}

Result<int64_t> query_int(const http::Request& request, std::string_view name, int64_t min, int64_t max, int64_t otherwise) {
  const auto value = request.query_value(name);
  if (!value) return otherwise;
  const auto number = parse_int(*value);
  if (!number || *number < min || *number > max) {
    return fail(Code::kInvalidArgument,
                std::string(name) + ": must be an integer between " + std::to_string(min) + " and " + std::to_string(max),
                {{"field", std::string(name)}});
  }
  return *number;
}

Result<void> check_query(const http::Request& request, std::initializer_list<std::string_view> allowed) {
  std::set<std::string_view> seen;
  for (const auto& [name, value] : request.query) {
    const bool repeatable = std::find(allowed.begin(), allowed.end(), name + "*") != allowed.end();
    if (!seen.insert(name).second && !repeatable) {
      return fail(Code::kInvalidArgument, utf8_lossy(name.substr(0, 64)) + ": is given twice", {{"field", utf8_lossy(name.substr(0, 64))}});
    }
    const bool known = std::any_of(allowed.begin(), allowed.end(), [&](std::string_view a) {
      return name == a || (repeatable && name + "*" == a) || (a.ends_with('.') && name.size() > a.size() && name.starts_with(a));
    });
    if (known) continue;
    std::string list;
    for (const std::string_view a : allowed) list += (list.empty() ? "" : ", ") + std::string(a);
    return fail(Code::kInvalidArgument,
                utf8_lossy(name.substr(0, 64)) + ": unknown query parameter" + (list.empty() ? "" : "; this call knows " + list),
                {{"field", utf8_lossy(name.substr(0, 64))}});
  }
  return {};
}

}  // namespace glovebox::api
