// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/watch.h"

#include <algorithm>
#include <cctype>

#include "api/e2b/errors.h"
#include "base/text.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::FileEvent;
using sandbox::Millis;

constexpr Millis kGoneCheck{15'000};  // how soon a silent stream notices that its reader left
constexpr std::string_view kOverflow =
    "events are missing: more happened than the watch could hold";

struct Wanted {
  std::string path;
  bool recursive = false, with_entries = false;
};

Result<Wanted> read_wanted(const DaemonCall& call, const Message& request) {
  GB_TRY(const auto text, request.text("path"));
  Wanted out;
  GB_TRY(out.path, call.path(text));
  GB_TRY(const auto recursive, request.boolean("recursive"));
  GB_TRY(const auto with_entries, request.boolean("includeEntry"));
  out.recursive = recursive.value_or(false);
  out.with_entries = with_entries.value_or(false);
  return out;
}

bj::object event_object(const FileEvent& event) {
  std::string type = "EVENT_TYPE_";
  for (const char c : event.type)
    type += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return {{"name", event.path.empty() ? "." : utf8_lossy(event.path)}, {"type", type}};
}

// Looking at a file would resume a paused sandbox.
Async<void> add_entry(DaemonCall& call, const Wanted& wanted, const FileEvent& event,
                      bj::object& out) {
  const auto now = call.parts.service.get_unchecked(call.info.id);
  const bool is_there = event.type != "remove" && event.type != "rename";
  if (!wanted.with_entries || !is_there || !now || now->state != sandbox::State::kReady)
    co_return Result<void>();
  auto found = co_await entry_at(call, wanted.path + "/" + event.path);
  if (found) out["entry"] = std::move(found->as_object().at("entry"));
  co_return Result<void>();
}

Async<void> send_events(DaemonCall& call, const Wanted& wanted,
                        const std::vector<FileEvent>& events, StreamAnswer& answer) {
  std::string text;
  for (const FileEvent& event : events) {
    if (event.type == "overflow") {
      if (!text.empty()) GB_CO_TRYV(co_await answer.write(std::move(text)));
      co_return co_await answer.end_with(rpc_error("internal", std::string(kOverflow)));
    }
    bj::object out = event_object(event);
    GB_CO_TRYV(co_await add_entry(call, wanted, event, out));
    text += envelope(json::to_text(bj::object{{"filesystem", std::move(out)}}));
  }
  co_return co_await answer.write(std::move(text));
}

bool has_overflow(const std::vector<FileEvent>& events) {
  return std::ranges::any_of(events,
                             [](const FileEvent& event) { return event.type == "overflow"; });
}

// Until the directory is gone, something was missed, the client has left, or the deadline.
Async<void> follow(DaemonCall& call, const Wanted& wanted, sandbox::FileWatch& watch,
                   StreamAnswer& answer) {
  const Millis timeout = client_timeout(call.request()),
               interval = keepalive_interval(call.request());
  const Deadline deadline = timeout.count() > 0 ? after(timeout) : Deadline::max();
  Deadline silent_until = after(interval);
  for (;;) {
    const auto events = co_await watch.next(std::min({deadline, silent_until, after(kGoneCheck)}));
    if (!events && events.error().code == Code::kFileNotFound) co_return co_await answer.end();
    if (!events) co_return fail(events.error());
    if (!events->empty()) {
      GB_CO_TRYV(co_await send_events(call, wanted, *events, answer));
      if (has_overflow(*events)) co_return Result<void>();
      silent_until = after(interval);
    }
    if (Clock::now() >= deadline) {
      co_return co_await answer.end_with(
          rpc_error("deadline_exceeded", "the deadline of this call has passed"));
    }
    if (call.exchange.client_gone()) co_return fail(Code::kCancelled, "the client has gone");
    if (Clock::now() < silent_until) continue;
    GB_CO_TRYV(co_await answer.send(R"({"keepalive":{}})"));
    silent_until = after(interval);
  }
}

}  // namespace

Async<void> watch_dir(DaemonCall& call, const Message& request, StreamAnswer& answer) {
  GB_CO_TRY(const auto wanted, read_wanted(call, request));
  GB_CO_TRY(auto watch, co_await call.parts.service.watch_files(
                            call.caller, call.info.id, call.user, wanted.path, wanted.recursive));
  GB_CO_TRYV(co_await answer.begin());
  GB_CO_TRYV(co_await answer.send(R"({"start":{}})"));
  co_return co_await follow(call, wanted, *watch, answer);
}

Async<bj::value> create_watcher(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto wanted, read_wanted(call, request));
  GB_CO_TRY(const auto id,
            co_await call.parts.watchers->create(call.parts.service, call.caller, call.info.id,
                                                 call.user, wanted.path, wanted.recursive));
  co_return bj::object{{"watcherId", id}};
}

Async<bj::value> get_watcher_events(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto id, request.text("watcherId"));
  GB_CO_TRY(const auto taken, co_await call.parts.watchers->take(call.info.id, id));
  if (taken.overflowed) co_return fail(rpc_error("internal", std::string(kOverflow)));
  bj::array events;
  for (const FileEvent& event : taken.events) events.push_back(event_object(event));
  co_return bj::object{{"events", std::move(events)}};
}

Async<bj::value> remove_watcher(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto id, request.text("watcherId"));
  GB_CO_TRYV(call.parts.watchers->remove(call.info.id, id));
  co_return bj::object();
}

}  // namespace glovebox::api::e2b
