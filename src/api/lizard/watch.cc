// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"
#include "api/watchers.h"
#include "base/text.h"

// Watching a directory, by polling.
namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;

Async<void> create(Watchers& watchers, Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto path, r.string("path", 1).required());
  GB_CO_TRY(const bool recursive, r.boolean("recursive").or_default(false));
  GB_CO_TRY(const auto user, r.string("user").or_default(""));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto id, co_await watchers.create(call.service, call.caller, call.param("id"),
                                                    user, path, recursive));
  co_return co_await call.reply(bj::object{{"watcherId", id}});
}

Async<void> events(Watchers& watchers, Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRY(const auto taken, co_await watchers.take(call.param("id"), call.query("watcherId")));
  if (taken.overflowed)
    co_return fail(Code::kCapacity, "events are missing: more happened than the watch could hold");
  bj::array out;
  for (const auto& event : taken.events) {
    const std::string path = event.path.empty() ? taken.path : taken.path + "/" + event.path;
    out.push_back(bj::object{
        {"type", event.type}, {"name", utf8_lossy(event.path)}, {"path", utf8_lossy(path)}});
  }
  co_return co_await call.reply(std::move(out));
}

Async<void> remove(Watchers& watchers, Call& call) {
  GB_CO_TRYV(call.live_sandbox());
  GB_CO_TRYV(watchers.remove(call.param("id"), call.query("watcherId")));
  co_return co_await call.reply_empty();
}

}  // namespace

void add_watch_routes(Routes& routes) {
  const auto watchers = std::make_shared<Watchers>("no such watcher");
  const auto add = [&](std::string_view method, std::string_view pattern,
                       Async<void> (*handler)(Watchers&, Call&)) {
    routes.add(method, pattern,
               [watchers, handler](Call& call) { return handler(*watchers, call); });
  };
  add("POST", "/api/sandboxes/{id}/files/watch", create);
  add("DELETE", "/api/sandboxes/{id}/files/watch", remove);
  add("GET", "/api/sandboxes/{id}/files/watch/events", events);
}

}  // namespace glovebox::api::lizard
