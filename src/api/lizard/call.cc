// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"

#include <strings.h>

#include "api/lizard/errors.h"

namespace glovebox::api::lizard {
namespace {

// The client sends X-API-Key, the vendor's command line a bearer token.
std::string secret_of(const http::Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  if (auto key = request.header("X-API-Key")) return std::move(*key);
  const std::string value = request.header("Authorization").value_or("");
  const bool is_bearer = value.size() > kBearer.size() && ::strncasecmp(value.data(), kBearer.data(), kBearer.size()) == 0;
  return is_bearer ? value.substr(kBearer.size()) : "";
}

const http::Headers kJson = {{"Content-Type", "application/json"}};

Async<void> send_refusal(http::Exchange& exchange, const Error& error) {
  WireError wire = wire_error(error);
  http::Headers headers = kJson;
  if (const auto* wait = wire.body.if_contains("retryAfterS")) headers.emplace_back("Retry-After", json::to_text(*wait));
  if (wire.status == 503) headers.emplace_back("Retry-After", "1");
  co_return co_await exchange.response.send(wire.status, std::move(headers), json::to_text(std::move(wire.body)));
}

Awaitable<void> finish(http::Exchange& exchange, Result<void> done) {
  if (done) co_return;
  if (exchange.response.head_sent()) {
    exchange.response.abort();  // a stream must not look whole
  } else {
    (void)co_await send_refusal(exchange, done.error());
  }
}

}  // namespace

Result<sandbox::SandboxInfo> Call::live_sandbox() const {
  GB_TRY(auto found, service.get(caller, param("id")));
  if (found.state == sandbox::State::kEnded) return fail(Code::kSandboxNotFound, "sandbox " + found.id + " has ended");
  return found;
}

Async<boost::json::value> Call::json_body(size_t limit) {
  GB_CO_TRY(const std::string text, co_await exchange.body.read_all(limit));
  if (text.empty()) co_return boost::json::object();
  co_return json::parse_object(text);
}

Async<void> Call::reply(boost::json::value value, int status) {
  std::string text = json::to_text(value);
  co_return co_await exchange.response.send(status, kJson, std::move(text));
}

Async<void> Call::reply_empty() { return exchange.response.send(204, {}, ""); }

void Routes::add(std::string_view method, std::string_view pattern, Handler handler) {
  auto& service = service_;
  auto& keys = keys_;
  router_.add(method, pattern, [&service, &keys, handler](http::Exchange& exchange, const http::Params& params) -> Awaitable<void> {
    auto caller = keys.authenticate(secret_of(exchange.request));
    if (!caller) {
      co_await finish(exchange, fail(std::move(caller).error()));
      co_return;
    }
    Call call{exchange, params, std::move(*caller), service, keys};
    auto done = co_await handler(call);
    co_await finish(exchange, std::move(done));
  });
}

void Routes::add_unsupported(std::string_view method, std::string_view pattern, std::string feature) {
  const bool of_sandbox = pattern.starts_with("/api/sandboxes/{id}/");
  add(method, pattern, [of_sandbox, feature](Call& call) -> Async<void> {
    if (of_sandbox) GB_CO_TRYV(call.live_sandbox());
    co_return fail(Code::kUnsupported, "this server does not have " + feature);
  });
}

void add_lizard_routes(http::Router& router, sandbox::SandboxService& service, tenant::Keys& keys) {
  Routes routes(router, service, keys);
  add_sandbox_routes(routes);
  add_exec_routes(routes);
  add_file_routes(routes);
  add_account_routes(routes);
  add_unsupported_routes(routes);
}

}  // namespace glovebox::api::lizard
