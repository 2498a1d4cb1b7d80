// SPDX-License-Identifier: Apache-2.0
#include <sodium.h>

#include <algorithm>
#include <cmath>

#include "api/e2b/control.h"
#include "api/e2b/errors.h"
#include "api/e2b/names.h"
#include "api/e2b/template_builds.h"
#include "base/text.h"
#include "http/json.h"
#include "image/digest.h"

// Templates that clients build: what they ask for, the files they send, how it goes.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;

constexpr uint16_t kUpload = 3;  // numbers tokens beside those of Access
constexpr std::chrono::hours kUploadTime{1};
constexpr int64_t kPage = 100, kMaxPage = 1000;
constexpr std::string_view kLevels[] = {"debug", "info", "warn", "error"};

std::string new_uuid() {
  unsigned char bytes[16];
  randombytes_buf(bytes, sizeof bytes);
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  std::string out = hex(std::string_view(reinterpret_cast<const char*>(bytes), sizeof bytes));
  for (const size_t at : {20, 16, 12, 8}) out.insert(at, "-");
  return out;
}

bj::array array_of(const std::vector<std::string>& words) { return bj::array(words.begin(), words.end()); }

Awaitable<bool> is_operators(const Parts& parts, const std::string& name) {
  co_return co_await run_blocking(parts.pool, [&] { return parts.templates.find(name).has_value(); });
}

// Requests and their state ------------------------------------------------------------------------------------------------

Async<void> request_build(ControlCall& call, TemplateBuilds& builds) {
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  GB_CO_TRY(const auto alias, r.string("alias", 0, 200).or_default(""));
  GB_CO_TRY(const auto reference, r.string("name", 0, 200).or_default(alias));
  GB_CO_TRY(const auto tags, r.strings("tags", 20).or_default({}));
  GB_CO_TRY(const auto cpus, r.integer("cpuCount", 1, 1024).optional());
  GB_CO_TRY(const auto memory, r.integer("memoryMB", 16, 1 << 24).optional());
  if (r.has("minFreeDiskMb")) co_return fail(Code::kUnsupported, "this server does not have minFreeDiskMb: disks are the operator's default");
  GB_CO_TRY(auto name, read_build_name(reference, tags));
  if (co_await is_operators(call.parts, template_name(name.name)))
    co_return fail(Code::kAlreadyExists, "the template " + name.name + " is the operator's: choose another name");
  Build build{.id = new_uuid(), .template_id = template_id_of(call.caller.tenant, name.name), .name = std::move(name), .caller = call.caller};
  build.created_at = std::chrono::system_clock::now();
  if (cpus) build.cpus = static_cast<double>(*cpus);
  if (memory) build.memory_bytes = static_cast<uint64_t>(*memory) << 20;
  GB_CO_TRY(const auto made, builds.add(std::move(build)));
  co_return co_await call.reply(bj::object{{"templateID", made->template_id},
                                           {"buildID", made->id},
                                           {"public", false},
                                           {"names", bj::array{made->name.name}},
                                           {"tags", array_of(made->name.tags)},
                                           {"aliases", bj::array{made->name.name}}},
                                202);
}

Result<BuildPtr> build_of(ControlCall& call, TemplateBuilds& builds) {
  return builds.find(call.caller.tenant, call.param("template"), call.param("build"));
}

Async<void> start_build(ControlCall& call, TemplateBuilds& builds) {
  GB_CO_TRY(const auto build, build_of(call, builds));
  GB_CO_TRY(const auto body, co_await call.json_body());
  GB_CO_TRY(auto plan, read_plan(body));
  if (!plan.start_command.empty() && call.parts.service.auto_tier(call.caller) == runtime::Tier::kContainer)
    co_return fail(Code::kUnsupported, "this server does not have startCmd on the runtime container, which keeps no memory");
  GB_CO_TRYV(builds.start(build, std::move(plan), co_await this_executor()));
  co_return co_await call.exchange.response.send(202, call.headers(), "");
}

bj::object entry_object(const BuildLogEntry& entry) {
  bj::object out{{"timestamp", iso_time(entry.at)}, {"message", entry.message}, {"level", entry.level}};
  if (!entry.step.empty()) out["step"] = entry.step;
  return out;
}

Async<void> show_status(ControlCall& call, TemplateBuilds& builds) {
  GB_CO_TRY(const auto build, build_of(call, builds));
  GB_CO_TRY(const auto offset, query_int(call.request(), "logsOffset", 0, 1LL << 40, 0));
  GB_CO_TRY(const auto limit, query_int(call.request(), "limit", 0, kMaxPage, kPage));
  const std::string least = call.request().query_value("level").value_or("debug");
  const auto rank = [](std::string_view level) { return std::ranges::find(kLevels, level) - std::begin(kLevels); };
  if (rank(least) == std::ssize(kLevels)) co_return fail(Code::kInvalidArgument, "level: must be debug, info, warn or error");
  constexpr const char* kStates[] = {"waiting", "building", "ready", "error"};
  bj::array entries, lines;
  int64_t at = 0;
  for (const auto& entry : build->logs) {
    if (rank(entry.level) < rank(least) || at++ < offset || std::ssize(entries) >= limit) continue;
    entries.push_back(entry_object(entry));
    lines.emplace_back(entry.message);
  }
  bj::object out{{"templateID", build->template_id},
                 {"buildID", build->id},
                 {"status", kStates[static_cast<size_t>(build->state)]},
                 {"logs", std::move(lines)},
                 {"logEntries", std::move(entries)}};
  if (build->state == Build::State::kError) out["reason"] = bj::object{{"message", build->problem}, {"step", build->step}, {"logEntries", bj::array{}}};
  co_return co_await call.reply(std::move(out));
}

Async<void> show_alias(ControlCall& call) {
  const std::string name = template_name(call.param("alias"));
  if (const auto found = find_snapshot(call.parts.snapshots, call.caller, name); found && found->labels.contains(kTemplateLabel))
    co_return co_await call.reply(bj::object{{"templateID", found->labels.at(kTemplateLabel)}, {"public", false}});
  if (!co_await is_operators(call.parts, name)) co_return fail(Code::kNotFound, "there is no template '" + utf8_lossy(name) + "'");
  co_return co_await call.reply(bj::object{{"templateID", name}, {"public", true}});
}

// Files -------------------------------------------------------------------------------------------------------------------

std::string upload_token(const Parts& parts, const std::string& template_id, const std::string& hash, const std::string& until) {
  return parts.tokens.token(template_id + "." + hash + "." + until, kUpload, 0);
}

// Where clients reach this server, as they said themselves.
std::string own_address(const http::Request& request) {
  const bool is_tls = request.is_tls || request.header("X-Forwarded-Proto") == "https";
  return (is_tls ? "https://" : "http://") + request.header("Host").value_or("localhost");
}

Async<void> link_files(ControlCall& call, TemplateBuilds& builds) {
  const std::string& id = call.param("template");
  const std::string& hash = call.param("hash");
  if (!image::is_sha256_hex(hash)) co_return fail(Code::kInvalidArgument, "hash: must be 64 hexadecimal digits");
  if (builds.tenant_of(id) != call.caller.tenant) co_return fail(Code::kNotFound, "no build of this template was asked for");
  const bool is_present = co_await builds.files().has(call.caller.tenant, hash);
  const std::string until = std::to_string(unix_millis(std::chrono::system_clock::now() + kUploadTime) / 1000);
  const std::string url = own_address(call.request()) + "/templates/" + id + "/files/" + hash + "?until=" + until +
                          "&upload=" + http::percent_encode(upload_token(call.parts, id, hash, until));
  co_return co_await call.reply(bj::object{{"present", is_present}, {"url", url}, {"headers", bj::object{}}}, 201);
}

// Without a key: whoever has the link may send.
Async<void> take_files(const Parts& parts, TemplateBuilds& builds, http::Exchange& exchange, const http::Params& params) {
  const std::string& id = params.find("template")->second;
  const std::string& hash = params.find("hash")->second;
  const std::string until = exchange.request.query_value("until").value_or("");
  const std::string shown = exchange.request.query_value("upload").value_or("");
  const int64_t now = unix_millis(std::chrono::system_clock::now()) / 1000;
  if (!preview::Tokens::equal(shown, upload_token(parts, id, hash, until)) || parse_int(until).value_or(0) < now)
    co_return fail(Code::kUnauthenticated, "the link is not valid, or has expired");
  const auto tenant = builds.tenant_of(id);
  if (!tenant || !image::is_sha256_hex(hash)) co_return fail(Code::kNotFound, "no build of this template was asked for");
  if (!exchange.request.content_length) co_return fail(Code::kInvalidArgument, "Content-Length: is required");
  GB_CO_TRYV(co_await builds.files().put(*tenant, hash, exchange.body, *exchange.request.content_length));
  co_return co_await exchange.response.send(200, {}, "");
}

}  // namespace

void add_template_routes(ControlRoutes& routes, http::Router& router, const Parts& parts, TemplateBuilds& builds) {
  const auto with_builds = [&builds](Async<void> (*handler)(ControlCall&, TemplateBuilds&)) {
    return [&builds, handler](ControlCall& call) { return handler(call, builds); };
  };
  for (const char* pattern : {"/v3/templates", "/v2/templates"}) routes.add("POST", pattern, with_builds(request_build));
  routes.add("POST", "/v2/templates/{template}/builds/{build}", with_builds(start_build));
  routes.add("GET", "/templates/{template}/builds/{build}/status", with_builds(show_status));
  routes.add("GET", "/templates/{template}/files/{hash}", with_builds(link_files));
  routes.add("GET", "/templates/aliases/{alias}", show_alias);
  router.add("PUT", "/templates/{template}/files/{hash}", [&](http::Exchange& exchange, const http::Params& params) -> Awaitable<void> {
    auto done = co_await take_files(parts, builds, exchange, params);
    if (!done && !exchange.response.head_sent()) (void)co_await send_rest_error(exchange, done.error(), false);
  });
}

}  // namespace glovebox::api::e2b
