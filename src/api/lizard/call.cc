// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"

#include "api/lizard/errors.h"

namespace glovebox::api::lizard {
namespace {

Async<void> send_refusal(http::Exchange& exchange, const Error& error, http::Headers headers) {
  WireError wire = wire_error(error);
  headers.emplace_back("Content-Type", "application/json");
  if (const auto* wait = wire.body.if_contains("retryAfterS")) {
    headers.emplace_back("Retry-After", json::to_text(*wait));
  } else if (wire.status == 503) {
    headers.emplace_back("Retry-After", "1");
  }
  std::string text = json::to_text(std::move(wire.body));
  co_return co_await exchange.response.send(wire.status, std::move(headers), std::move(text));
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

Async<void> Call::reply(boost::json::value value, int status) { return send_json(status, json::to_text(value)); }
Async<void> Call::reply_empty() { return exchange.response.send(204, headers(), ""); }

http::Headers Call::json_headers() const {
  http::Headers all = headers();
  all.emplace_back("Content-Type", "application/json");
  return all;
}

void Routes::add(std::string_view method, std::string_view pattern, Handler handler) {
  auto action = [&service = service_, &snapshots = snapshots_, &volumes = volumes_, &keys = keys_, handler = std::move(handler)](api::Call& base) -> Async<void> {
    Call call{base, service, snapshots, volumes, keys};
    co_return co_await handler(call);
  };
  add_route(router_, keys_, method, pattern, std::move(action), send_refusal);
}

void Routes::add_unsupported(std::string_view method, std::string_view pattern, std::string feature) {
  const bool of_sandbox = pattern.starts_with("/api/sandboxes/{id}/");
  add(method, pattern, [of_sandbox, feature](Call& call) -> Async<void> {
    if (of_sandbox) GB_CO_TRYV(call.live_sandbox());
    co_return fail(Code::kUnsupported, "this server does not have " + feature);
  });
}

void add_lizard_routes(http::Router& router, sandbox::SandboxService& service, sandbox::Snapshots& snapshots, sandbox::Volumes& volumes, tenant::Keys& keys,
                       preview::Gateway& previews) {
  Routes routes(router, service, snapshots, volumes, keys);
  add_sandbox_routes(routes);
  add_snapshot_routes(routes);
  add_volume_routes(routes);
  add_exec_routes(routes);
  add_file_routes(routes);
  add_watch_routes(routes);
  add_account_routes(routes);
  add_port_routes(routes, previews);
  add_unsupported_routes(routes);
}

}  // namespace glovebox::api::lizard
