// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/lifecycle.h"

#include <algorithm>

#include "api/e2b/control.h"
#include "api/e2b/views.h"
#include "base/text.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::SandboxInfo;
using sandbox::State;

Async<int64_t> read_timeout(ControlCall& call) {
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto timeout, r.integer("timeout", 0, kMaxSeconds).or_default(kDefaultSeconds));
  GB_CO_TRY(const bool memory, r.boolean("memory").or_default(true));
  if (!memory)
    co_return fail(Code::kUnsupported,
                   "this server does not have a resume that drops the memory that was kept");
  co_return std::max<int64_t>(timeout, 1);
}

// A deadline that is later than the present one, and the mark that makes the sandbox reachable by
// this dialect's means.
Async<SandboxInfo> extend(ControlCall& call, const SandboxInfo& info, int64_t timeout) {
  sandbox::Update update;
  const WallTime wanted = std::chrono::system_clock::now() + seconds(timeout);
  if (info.expires_at && *info.expires_at < wanted) update.lifetime = seconds(timeout);
  if (!info.attributes.contains(kDialectAttribute)) update.attributes[kDialectAttribute] = "on";
  if (!update.lifetime && update.attributes.empty()) co_return info;
  co_return co_await call.parts.service.update(call.caller, info.id, std::move(update));
}

tl::unexpected<Error> wrong_state(const ControlCall& call, std::string_view is, State state) {
  return fail(Code::kConflict, "sandbox '" + call.param("id") + "' is " + std::string(is),
              {{"state", std::string(state_name(state))}});
}

Async<void> connect(ControlCall& call) {
  GB_CO_TRY(const auto info, call.live_sandbox());
  GB_CO_TRY(const int64_t timeout, co_await read_timeout(call));
  const bool was_paused = info.state == State::kPaused;
  if (was_paused) GB_CO_TRYV(co_await run_again(call.parts.service, call.caller, info.id, timeout));
  GB_CO_TRY(const auto now, call.live_sandbox());
  GB_CO_TRY(const auto extended, co_await extend(call, now, timeout));
  co_return co_await call.reply(sandbox_object(extended, call.parts), was_paused ? 201 : 200);
}

Async<void> resume(ControlCall& call) {
  GB_CO_TRY(const auto info, call.live_sandbox());
  if (info.state != State::kPaused) co_return wrong_state(call, "running", info.state);
  GB_CO_TRY(const int64_t timeout, co_await read_timeout(call));
  GB_CO_TRY(const auto now, co_await run_again(call.parts.service, call.caller, info.id, timeout));
  co_return co_await call.reply(sandbox_object(now, call.parts), 201);
}

Async<SandboxInfo> stop(ControlCall& call, const SandboxInfo& info, bool keeps_memory) {
  if (keeps_memory) co_return co_await call.parts.service.pause(call.caller, info.id);
  GB_CO_TRYV(check_drops_memory(info));
  co_return co_await call.parts.snapshots.hibernate(call.caller, info.id, runtime::Kept::kFiles);
}

Async<void> pause(ControlCall& call) {
  GB_CO_TRY(const auto info, call.live_sandbox());
  if (info.state == State::kPaused) co_return wrong_state(call, "paused already", info.state);
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const bool memory, r.boolean("memory").or_default(true));
  GB_CO_TRY(const auto paused, co_await stop(call, info, memory));
  // One that its deadline would pause has none while it is paused; one that it would kill must not
  // be killed.
  if (paused.expires_at && paused.on_timeout == sandbox::OnTimeout::kKill) {
    sandbox::Update update;
    update.lifetime = sandbox::Millis(0);
    GB_CO_TRYV(co_await call.parts.service.update(call.caller, info.id, std::move(update)));
  }
  co_return co_await call.reply_empty();
}

// Only what runs has a deadline here.
Result<SandboxInfo> running_sandbox(const ControlCall& call) {
  GB_TRY(auto info, call.live_sandbox());
  if (info.state != State::kPaused) return info;
  return fail(Code::kSandboxNotFound, "sandbox '" + call.param("id") + "' is paused");
}

Async<void> set_timeout(ControlCall& call) {
  GB_CO_TRYV(running_sandbox(call));
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto timeout, r.integer("timeout", 0, kMaxSeconds).required());
  if (timeout == 0) {  // over at once; our own 0 would mean "none"
    GB_CO_TRYV(co_await call.parts.service.kill(call.caller, call.id()));
    co_return co_await call.reply_empty();
  }
  sandbox::Update update;
  update.lifetime = seconds(timeout);
  GB_CO_TRYV(co_await call.parts.service.update(call.caller, call.id(), std::move(update)));
  co_return co_await call.reply_empty();
}

Async<void> refresh(ControlCall& call) {
  GB_CO_TRY(const auto info, running_sandbox(call));
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto duration,
            r.integer("duration", 0, kMaxSeconds).or_default(kDefaultSecondsV1));
  GB_CO_TRYV(co_await extend(call, info, duration));
  co_return co_await call.reply_empty();
}

}  // namespace

// Without its memory it would boot afresh, which takes a caller's decision.
bool resumes_by_traffic(const SandboxInfo& info) {
  if (info.paused && info.paused->kept != runtime::Kept::kMemoryAndFiles) return false;
  const auto found = info.attributes.find(kResumeAttribute);
  return found != info.attributes.end() && found->second == "on";
}

Result<void> check_drops_memory(const SandboxInfo& info) {
  if (info.tier == runtime::Tier::kContainer) return {};
  return fail(Code::kUnsupported, "this server does not drop memory that a sandbox's runtime keeps");
}

int64_t timeout_of(const SandboxInfo& info) {
  const auto found = info.attributes.find(kTimeoutAttribute);
  const auto asked = found == info.attributes.end() ? std::nullopt : parse_int(found->second);
  return std::clamp<int64_t>(asked.value_or(kDefaultSeconds), 1, kMaxSeconds);
}

// The deadline is there before it runs: whatever happens in between, it does not run for ever.
Async<SandboxInfo> run_again(sandbox::SandboxService& service, const sandbox::Caller& caller,
                             const std::string& id, int64_t timeout) {
  sandbox::Update update;
  update.lifetime = seconds(timeout);
  GB_CO_TRYV(co_await service.update(caller, id, std::move(update)));
  co_return co_await service.resume(caller, id);
}

void add_lifecycle_routes(ControlRoutes& routes) {
  routes.add("POST", "/sandboxes/{id}/connect", connect);
  routes.add("POST", "/v2/sandboxes/{id}/connect", connect);
  routes.add("POST", "/sandboxes/{id}/timeout", set_timeout);
  routes.add("POST", "/sandboxes/{id}/refreshes", refresh);
  routes.add("POST", "/sandboxes/{id}/pause", pause);
  routes.add("POST", "/sandboxes/{id}/resume", resume);
}

}  // namespace glovebox::api::e2b
