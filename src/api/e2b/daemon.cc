// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json/object.hpp>
#include <cmath>
#include <set>

#include "api/e2b/access.h"
#include "api/e2b/daemon_call.h"
#include "api/e2b/errors.h"
#include "api/e2b/lifecycle.h"
#include "api/e2b/names.h"
#include "api/e2b/target.h"
#include "api/e2b/views.h"
#include "base/log.h"
#include "base/text.h"
#include "http/json.h"

// Requests for ports of sandboxes: who they are for, whether they may, and which part of the dialect serves them.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::SandboxInfo;
using sandbox::State;

constexpr std::string_view kTrafficHeader = "E2b-Traffic-Access-Token";

// One that runs, or that traffic resumes; any other paused one is gone for clients.
Result<SandboxInfo> live_sandbox(const Parts& parts, const std::string& id) {
  GB_TRY(auto info, parts.service.get_unchecked(id));
  if (info.state == State::kReady || (info.paused && resumes_by_traffic(info))) return info;
  return fail(Code::kSandboxEnded, "the sandbox is not running", {{"state", std::string(state_name(info.state))}});
}

sandbox::Caller caller_for(const SandboxInfo& info) {
  return {info.tenant, "e2b", sandbox::Role::kUser, {}, http::new_request_id()};
}

// For a sandbox whose caller has been let in.
Async<void> wake(const Parts& parts, const SandboxInfo& info) {
  if (info.state == State::kPaused) GB_CO_TRYV(co_await run_again(parts.service, caller_for(info), info.id, timeout_of(info)));
  co_return Result<void>();
}

// The sandbox whose token made this signature. Only those that this dialect has handed a token for are tried.
Result<std::string> signer_of(const Parts& parts, const SignedUrl& url) {
  const Access access(parts.tokens);
  std::set<std::string> tenants;
  for (const auto& key : parts.keys.list()) tenants.insert(key.tenant);
  for (const std::string& tenant : tenants) {
    sandbox::ListFilter filter{.states = {State::kReady, State::kPaused}, .attributes = {{kDialectAttribute, "on"}}, .limit = 1000};
    do {
      GB_TRY(const auto page, parts.service.list({tenant, "e2b", sandbox::Role::kUser, {}, {}}, filter));
      for (const auto& info : page.items) {
        if (is_signed_by(url, access.daemon_token(info.id))) return info.id;
      }
      filter.cursor = page.next_cursor;
    } while (!filter.cursor.empty());
  }
  return fail(Code::kUnauthenticated, "the signature is not valid");
}

Result<Target> target_of(const Parts& parts, const http::Request& request) {
  auto named = named_target(request);
  if (named || named.error().code != Code::kNotFound) return named;
  if (const auto token = request.header("X-Access-Token")) {
    const auto id = Access(parts.tokens).sandbox_of(*token);
    if (!id) return fail(Code::kSandboxNotFound, "the access token belongs to no sandbox");
    const bool is_interpreter = request.path == "/execute" || request.path == "/contexts" || request.path.starts_with("/contexts/");
    return Target{*id, is_interpreter ? kInterpreterPort : kDaemonPort};
  }
  const auto url = signed_url(request);
  if (!url) return fail(Code::kNotFound, "no sandbox is named");
  GB_TRY(auto id, signer_of(parts, *url));
  return Target{std::move(id), kDaemonPort};
}

// The user of "Authorization: Basic base64(<user>:)".
std::string basic_user(const http::Request& request) {
  constexpr std::string_view kBasic = "basic ";
  const std::string header = request.header("Authorization").value_or("");
  if (!http::same_name(header.substr(0, kBasic.size()), kBasic)) return {};
  const std::string decoded = base64_decode(std::string_view(header).substr(kBasic.size())).value_or("");
  return decoded.substr(0, decoded.find(':'));
}

Result<void> authorize(const DaemonCall& call) {
  const http::Request& request = call.request();
  const Access access(call.parts.tokens);
  if (const auto shown = request.header("X-Access-Token")) {
    if (access.is_daemon_token(call.info.id, *shown)) return {};
    return fail(Code::kUnauthenticated, "the access token is not valid");
  }
  const auto url = request.path == "/files" ? signed_url(request) : std::nullopt;
  if (!url) return fail(Code::kUnauthenticated, "an access token is needed: X-Access-Token");
  if (!is_signed_by(*url, access.daemon_token(call.info.id))) return fail(Code::kUnauthenticated, "the signature is not valid");
  if (has_expired(*url, std::chrono::system_clock::now())) return fail(Code::kUnauthenticated, "the signature has expired");
  return {};
}

Async<void> send_json(DaemonCall& call, bj::value value) {
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", "application/json");
  co_return co_await call.exchange.response.send(200, std::move(headers), json::to_text(value));
}

Async<void> send_metrics(DaemonCall& call) {
  GB_CO_TRY(const auto sample, co_await sample_usage(call.parts.service, call.caller, call.info.id));
  const auto& limits = sample.info.limits;
  co_return co_await send_json(call, bj::object{{"ts", unix_millis(std::chrono::system_clock::now()) / 1000},
                                                {"cpu_count", static_cast<int64_t>(std::ceil(limits.cpus))},
                                                {"cpu_used_pct", sample.cpu_percent},
                                                {"mem_total", limits.memory_bytes},
                                                {"mem_used", sample.usage.memory_bytes},
                                                {"mem_cache", 0},
                                                {"mem_total_mib", limits.memory_bytes >> 20},
                                                {"mem_used_mib", sample.usage.memory_bytes >> 20},
                                                {"disk_total", limits.disk_bytes},
                                                {"disk_used", sample.usage.disk_bytes}});
}

Async<void> send_envs(DaemonCall& call) {
  bj::object envs;
  for (const auto& [name, value] : call.info.env) envs[utf8_lossy(name)] = utf8_lossy(value);
  co_return co_await send_json(call, std::move(envs));
}

Async<void> route(DaemonCall& call) {
  const http::Request& request = call.request();
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (request.path == "/health" && reads) {  // only looks: nothing is resumed
    if (call.info.state == State::kPaused) co_return fail(Code::kSandboxNotReady, "the sandbox is paused");
    co_return co_await call.exchange.response.send(204, open_headers(), "");
  }
  GB_CO_TRYV(authorize(call));
  GB_CO_TRYV(co_await wake(call.parts, call.info));
  const bool is_rpc = request.path.starts_with("/process.Process/") || request.path.starts_with("/filesystem.Filesystem/");
  if (is_rpc && request.method == "POST") co_return co_await serve_rpc(call);
  if (request.path == "/files" && reads) co_return co_await download(call);
  if (request.path == "/files" && request.method == "POST") co_return co_await upload(call);
  if (request.path == "/metrics" && reads) co_return co_await send_metrics(call);
  if (request.path == "/envs" && reads) co_return co_await send_envs(call);
  if (request.path == "/files/compose") co_return fail(Code::kUnsupported, "this server does not have /files/compose");
  co_return fail(Code::kRouteNotFound, "nothing is served at " + utf8_lossy(request.path));
}

Async<void> serve_daemon(const Parts& parts, http::Exchange& exchange, SandboxInfo info) {
  DaemonCall call{exchange, parts, std::move(info), {}, {}};
  call.caller = caller_for(call.info);
  call.user = exchange.request.path == "/files" ? exchange.request.query_value("username").value_or("") : basic_user(exchange.request);
  co_return co_await route(call);
}

// None of what let a request in reaches the app; clients send the daemon's token to a code interpreter, too.
void strip_credentials(http::Headers& headers, const std::string& daemon_token) {
  constexpr std::string_view kOwn[] = {kTrafficHeader, "E2b-Sandbox-Id", "E2b-Sandbox-Port", "Novita-Sandbox-Id", "Novita-Sandbox-Port"};
  std::erase_if(headers, [&](const auto& header) {
    const bool is_own = std::ranges::any_of(kOwn, [&](std::string_view name) { return http::same_name(header.first, name); });
    return is_own || (http::same_name(header.first, "X-Access-Token") && header.second == daemon_token);
  });
}

Result<void> check_traffic(const Parts& parts, const http::Request& request, const SandboxInfo& info) {
  const auto traffic = info.attributes.find(kTrafficAttribute);
  const bool is_public = traffic != info.attributes.end() && traffic->second == "public";
  const std::string shown = request.header(kTrafficHeader).value_or("");
  if (is_public || Access(parts.tokens).is_traffic_token(info.id, shown)) return {};
  return fail(Code::kForbidden, "this sandbox's ports need the header e2b-traffic-access-token");
}

// Clients show the daemon's token where code is run, and nothing where contexts are listed and made.
Async<void> serve_code(const Parts& parts, http::Exchange& exchange, SandboxInfo info) {
  DaemonCall call{exchange, parts, std::move(info), {}, {}};
  call.caller = caller_for(call.info);
  const bool has_token = exchange.request.header("X-Access-Token").has_value();
  if (has_token || exchange.request.path == "/execute") {
    GB_CO_TRYV(authorize(call));
  } else {
    GB_CO_TRYV(check_traffic(parts, exchange.request, call.info));
  }
  GB_CO_TRYV(co_await wake(parts, call.info));
  co_return co_await serve_interpreter(call);
}

// A port of a server inside.
Async<void> serve_port(const Parts& parts, http::Exchange& exchange, const SandboxInfo& info, uint16_t port) {
  GB_CO_TRYV(check_traffic(parts, exchange.request, info));
  GB_CO_TRYV(co_await wake(parts, info));
  strip_credentials(exchange.request.headers, Access(parts.tokens).daemon_token(info.id));
  co_return co_await parts.previews.pass(exchange, info.id, port);
}

Async<void> serve_target(const Parts& parts, http::Exchange& exchange, const Target& target) {
  GB_CO_TRY(auto info, live_sandbox(parts, target.id));
  if (target.port == kDaemonPort) co_return co_await serve_daemon(parts, exchange, std::move(info));
  if (target.port == kInterpreterPort) co_return co_await serve_code(parts, exchange, std::move(info));
  co_return co_await serve_port(parts, exchange, info, target.port);
}

Async<void> send_failure(http::Exchange& exchange, const std::optional<Target>& target, const Error& error) {
  const std::string id = target ? wire_id(target->id) : "";
  if (is_gone(error)) co_return co_await send_gone(exchange, id, "The sandbox was not found");
  if (error.code == Code::kPreviewUnreachable && target) {
    const bj::object body{{"sandboxId", id}, {"message", "The sandbox is running but port is not open"}, {"port", target->port}, {"code", 502}};
    co_return co_await exchange.response.send(502, {{"Content-Type", "application/json"}}, json::to_text(body));
  }
  co_return co_await send_rest_error(exchange, error, true, open_headers());
}

Async<void> answer_preflight(http::Exchange& exchange) {
  http::Headers headers = open_headers();
  headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE, OPTIONS");
  headers.emplace_back("Access-Control-Allow-Headers", exchange.request.header("Access-Control-Request-Headers").value_or("*"));
  headers.emplace_back("Access-Control-Max-Age", "7200");
  co_return co_await exchange.response.send(204, std::move(headers), "");
}

}  // namespace

http::Headers open_headers() {
  return {{"Access-Control-Allow-Origin", "*"},
          {"Access-Control-Expose-Headers", "Connect-Protocol-Version, Content-Range, Content-Disposition"}};
}

Result<std::string> DaemonCall::path(std::string_view text) const {
  const std::string start = acting_user() == info.user && !info.workdir.empty() ? info.workdir : home_of(acting_user());
  auto out = absolute_path(text, acting_user(), start);
  if (!out) return fail(Code::kInvalidPath, "path '" + utf8_lossy(text) + "': only your own home directory can be named by ~", {{"field", "path"}});
  return std::move(*out);
}

bool Dialect::claims_name(const http::Request& request) const { return target_of_host(request).has_value(); }

bool Dialect::claims(const http::Request& request) const {
  return claims_name(request) || (has_marks(request) && !parts_.previews.claims(request));
}

Awaitable<void> Dialect::serve(http::Exchange& exchange) {
  const auto by_name = target_of_host(exchange.request);
  const bool is_for_app = by_name && by_name->port != kDaemonPort;  // which answers its browsers itself
  if (is_preflight(exchange.request) && !is_for_app) {
    (void)co_await answer_preflight(exchange);
    co_return;
  }
  const auto target = target_of(parts_, exchange.request);
  auto done = target ? co_await serve_target(parts_, exchange, *target) : Result<void>(fail(target.error()));
  if (done) co_return;
  if (info(done.error().code).fault == Fault::kPlatform && done.error().code != Code::kCancelled) {
    log::warn("request.failed", {{"method", exchange.request.method}, {"path", exchange.request.path},
                                 {"code", info(done.error().code).name}, {"message", done.error().message}});
  }
  if (exchange.response.head_sent()) {
    exchange.response.abort();
    co_return;
  }
  (void)co_await send_failure(exchange, target ? std::optional(*target) : std::nullopt, done.error());
}

}  // namespace glovebox::api::e2b
