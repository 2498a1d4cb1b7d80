// SPDX-License-Identifier: Apache-2.0
#include "api/preview/ports.h"

#include <boost/json.hpp>

#include "api/call.h"
#include "api/preview/credentials.h"
#include "http/json.h"

namespace glovebox::api::preview {
namespace bj = boost::json;
namespace {

constexpr size_t kMaxBody = 64 << 10;

bj::value text_or_null(const std::string& text) { return text.empty() ? bj::value(nullptr) : bj::value(text); }

}  // namespace

bj::object view_object(const Gateway::View& v) {
  bj::value token = nullptr, link = nullptr;
  const std::string& best = !v.urls.domain.empty() ? v.urls.domain : !v.urls.localhost.empty() ? v.urls.localhost : v.urls.path;
  if (v.token) token = *v.token;
  if (v.state.is_public) link = best;
  if (v.token && !v.state.is_public) link = best + "?" + std::string(kTokenQuery) + "=" + *v.token;
  return {{"sandbox_id", v.sandbox_id},
          {"port", v.port},
          {"listening", v.listening ? bj::value(*v.listening) : bj::value(nullptr)},
          {"public", v.state.is_public},
          {"revoked", v.state.is_revoked},
          {"token", std::move(token)},
          {"urls", {{"path", v.urls.path}, {"localhost", text_or_null(v.urls.localhost)}, {"domain", text_or_null(v.urls.domain)}}},
          {"link", std::move(link)},
          {"expires_at", v.expires_at ? bj::value(iso_time(*v.expires_at)) : bj::value(nullptr)}};
}

namespace {

Result<uint16_t> port_of(const Call& call) {
  const auto port = parse_port(call.param("port"));
  if (!port) return fail(Code::kInvalidArgument, "port: must be a number from 1 to 65535", {{"field", "port"}});
  return *port;
}

Async<void> show(Gateway& gateway, Call& call, uint16_t port) {
  GB_CO_TRY(const auto view, co_await gateway.view(call.caller, call.param("id"), port, outside_of(call.request())));
  auto headers = call.headers();
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Cache-Control", "no-store");
  co_return co_await call.exchange.response.send(200, std::move(headers), json::to_text(view_object(view)));
}

Async<void> get(Gateway& gateway, Call& call) {
  GB_CO_TRY(const uint16_t port, port_of(call));
  co_return co_await show(gateway, call, port);
}

Async<void> post(Gateway& gateway, Call& call) {
  GB_CO_TRY(const uint16_t port, port_of(call));
  GB_CO_TRY(const std::string text, co_await call.exchange.body.read_all(kMaxBody));
  bj::value body = bj::object();
  if (!text.empty()) {
    GB_CO_TRY(body, json::parse_object(text));
  }
  json::Reader r(body);
  GB_CO_TRY(const bool is_public, r.boolean("public").or_default(false));
  GB_CO_TRYV(r.done());
  GB_CO_TRYV(co_await gateway.open(call.caller, call.param("id"), port, is_public));
  co_return co_await show(gateway, call, port);
}

Async<void> remove(Gateway& gateway, Call& call) {
  GB_CO_TRY(const uint16_t port, port_of(call));
  GB_CO_TRYV(co_await gateway.revoke(call.caller, call.param("id"), port));
  co_return co_await show(gateway, call, port);
}

}  // namespace

void add_port_routes(http::Router& router, const tenant::Keys& keys, Gateway* gateway) {
  constexpr std::string_view kPattern = "/v1/sandboxes/{id}/ports/{port}";
  add_route(router, keys, "GET", kPattern, [gateway](Call& call) { return get(*gateway, call); });
  add_route(router, keys, "POST", kPattern, [gateway](Call& call) { return post(*gateway, call); });
  add_route(router, keys, "DELETE", kPattern, [gateway](Call& call) { return remove(*gateway, call); });
}

}  // namespace glovebox::api::preview
