// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"
#include "api/lizard/errors.h"
#include "api/lizard/info.h"

namespace glovebox::api::lizard {
namespace {

Result<uint16_t> port_of(const Call& call) {
  const auto port = preview::parse_port(call.param("port"));
  if (!port) return fail(Code::kInvalidArgument, "port: must be a number from 1 to 65535", {{"field", "port"}});
  return *port;
}

Async<void> expose(Call& call, preview::Gateway& previews) {
  GB_CO_TRY(const uint16_t port, port_of(call));
  GB_CO_TRY(const auto info, call.live_sandbox());
  const auto internet = info.attributes.find(kInternetAttribute);
  if (internet != info.attributes.end() && internet->second == "off") {
    co_return fail(refusal(Code::kConflict, "INTERNET_ACCESS_OFF", "the sandbox was created with internetAccess: false or allowedHosts"));
  }
  GB_CO_TRY(const auto exposed, co_await previews.expose(call.caller, info.id, port));
  co_return co_await call.reply(boost::json::object{
      {"hostname", exposed.host}, {"url", exposed.url}, {"port", port}, {"accessToken", exposed.token}});
}

Async<void> unexpose(Call& call, preview::Gateway& previews) {
  GB_CO_TRY(const uint16_t port, port_of(call));
  GB_CO_TRY(const auto info, call.live_sandbox());
  GB_CO_TRYV(co_await previews.unexpose(call.caller, info.id, port));
  co_return co_await call.reply_empty();
}

}  // namespace

void add_port_routes(Routes& routes, preview::Gateway& previews) {
  constexpr std::string_view kPattern = "/api/sandboxes/{id}/expose/{port}";
  routes.add("POST", kPattern, [&previews](Call& call) { return expose(call, previews); });
  routes.add("DELETE", kPattern, [&previews](Call& call) { return unexpose(call, previews); });
}

}  // namespace glovebox::api::lizard
