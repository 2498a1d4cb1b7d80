// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/control.h"

#include "api/e2b/errors.h"
#include "api/e2b/names.h"
#include "api/e2b/template_builds.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

constexpr size_t kMaxBody = 4 << 20;

Async<void> send_error(http::Exchange& exchange, const Error& error, http::Headers headers) {
  return send_rest_error(exchange, error, false, std::move(headers));
}

}  // namespace

std::string ControlCall::id() const { return native_id(param("id")); }

Result<sandbox::SandboxInfo> ControlCall::live_sandbox() const {
  auto found = parts.service.get(caller, id());
  const bool is_there = found && found->state != sandbox::State::kEnded && found->state != sandbox::State::kEnding;
  if (!is_there) return fail(Code::kSandboxNotFound, "sandbox '" + param("id") + "' was not found");
  return found;
}

Async<boost::json::value> ControlCall::json_body() {
  GB_CO_TRY(const std::string text, co_await exchange.body.read_all(kMaxBody));
  if (text.empty()) co_return boost::json::object();
  co_return json::parse_object(text);
}

Async<void> ControlCall::reply(boost::json::value value, int status, http::Headers more) {
  http::Headers all = headers();
  all.emplace_back("Content-Type", "application/json");
  for (auto& header : more) all.push_back(std::move(header));
  co_return co_await exchange.response.send(status, std::move(all), json::to_text(value));
}
Async<void> ControlCall::reply_empty() { return exchange.response.send(204, headers(), ""); }

void ControlRoutes::add(std::string_view method, std::string_view pattern, ControlHandler handler) {
  auto action = [&parts = parts_, handler = std::move(handler)](api::Call& base) -> Async<void> {
    ControlCall call{base, parts};
    co_return co_await handler(call);
  };
  add_route(router_, parts_.keys, method, pattern, std::move(action), send_error);
}

void ControlRoutes::add_unsupported(std::string_view method, std::string_view pattern, std::string feature) {
  const bool of_sandbox = pattern.find("/sandboxes/{id}/") != pattern.npos;
  add(method, pattern, [of_sandbox, feature](ControlCall& call) -> Async<void> {
    if (of_sandbox) GB_CO_TRYV(call.live_sandbox());
    co_return fail(Code::kUnsupported, "this server does not have " + feature);
  });
}

Dialect::Dialect(Parts parts) : parts_(std::move(parts)), builds_(std::make_unique<TemplateBuilds>(parts_)) {}
Dialect::~Dialect() = default;
Awaitable<void> Dialect::start() { return builds_->clean_up(); }
Awaitable<void> Dialect::stop() { return builds_->stop(); }

void Dialect::add_control_routes(http::Router& router) {
  ControlRoutes routes(router, parts_);
  add_sandbox_routes(routes);
  add_lifecycle_routes(routes);
  add_snapshot_routes(routes);
  add_list_routes(routes);
  add_network_routes(routes);
  add_metrics_routes(routes);
  add_template_routes(routes, router, parts_, *builds_);
  add_unsupported_routes(routes);
  router.add("GET", "/health", [](http::Exchange& exchange, const http::Params&) -> Awaitable<void> {
    (void)co_await exchange.response.send(200, {{"Content-Type", "application/json"}}, "{}");
  });
}

}  // namespace glovebox::api::e2b
