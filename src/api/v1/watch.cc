// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "api/v1/views.h"
#include "http/sse.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;
namespace {

constexpr std::chrono::seconds kGoneCheck{2};  // how soon a silent watch gives its place back when its reader has left

// Events as they happen, to the end of the directory or of the client.
Async<void> follow(Call& call, sandbox::FileWatch& watch, http::EventStream& events) {
  Deadline silent_until = after(kKeepalive);
  while (!call.exchange.client_gone()) {
    const auto batch = co_await watch.next(after(kGoneCheck));
    if (!batch && batch.error().code == Code::kFileNotFound) co_return Result<void>();
    if (!batch) co_return fail(batch.error());
    for (const auto& event : *batch) {
      GB_CO_TRYV(co_await events.event(event.type, json::to_text(view(event))));
    }
    if (batch->empty() && Clock::now() < silent_until) continue;
    if (batch->empty()) GB_CO_TRYV(co_await events.keepalive());
    silent_until = after(kKeepalive);
  }
  co_return Result<void>();
}

}  // namespace

Async<void> watch_files(const Parts& parts, Call& call) {
  const auto& request = call.request();
  GB_CO_TRYV(check_query(request, {"path", "user", "recursive"}));
  const auto path = request.query_value("path");
  if (!path) co_return fail(Code::kInvalidArgument, "path: is required", {{"field", "path"}});
  GB_CO_TRY(const bool recursive, query_bool(request, "recursive", false));
  GB_CO_TRY(auto watch, co_await parts.service->watch_files(
                            call.caller, call.param("id"), request.query_value("user").value_or(""),
                            *path, recursive));
  http::EventStream events(call.exchange.response);
  GB_CO_TRYV(co_await events.begin(call.headers()));
  GB_CO_TRYV(co_await events.event("watching", "{}"));
  const auto followed = co_await follow(call, *watch, events);
  if (call.exchange.client_gone()) co_return followed;
  std::string reason = followed ? "{}" : http::error_body(followed.error());
  if (reason.ends_with('\n')) reason.pop_back();  // an event's data is one line
  GB_CO_TRYV(co_await events.event(followed ? "end" : "error", reason));
  co_return co_await events.end();
}

}  // namespace glovebox::api::v1
