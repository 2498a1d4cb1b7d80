// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "api/e2b/code_view.h"
#include "api/e2b/daemon_call.h"
#include "base/text.h"
#include "code/interpreter.h"
#include "http/json.h"
#include "http/sse.h"

// The port of the vendor's code interpreter: cells in contexts. Errors are plain text, streams a
// JSON object a line.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
constexpr size_t kMaxBody = 36 << 20;
constexpr std::chrono::seconds kPatience{25};  // some releases of the clients wait 30 s for an answer to begin
constexpr std::string_view kContexts = "/contexts";

Result<code::RunSpec> read_run(const bj::value& body) {
  json::Reader r(body);
  code::RunSpec spec;
  GB_TRY(spec.code, r.content("code").required());
  GB_TRY(spec.context, r.string("context_id", 0, 128).or_default(""));
  GB_TRY(const auto language, r.string("language", 0, 64).or_default(""));
  if (spec.context.empty()) spec.language = language;
  GB_TRY(spec.env, r.string_map("env_vars", 10'000).or_default({}));
  for (const auto& [name, value] : spec.env) {
    if (!code::is_variable_name(name))
      return fail(r.error("env_vars", "holds a name that is none"));
  }
  return spec;
}

Async<bj::value> read_body(DaemonCall& call) {
  GB_CO_TRY(const auto text, co_await call.exchange.body.read_all(kMaxBody));
  if (text.empty()) co_return bj::value(bj::object{});
  co_return json::parse_object(text);
}

bj::object view(const code::Context& context) {
  return {{"id", context.id}, {"language", context.language}, {"cwd", context.cwd}};
}

Async<void> send_json(DaemonCall& call, const bj::value& value) {
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", "application/json");
  co_return co_await call.exchange.response.send(200, std::move(headers), json::to_text(value));
}

// A client that goes away interrupts its cell.
Async<void> execute(DaemonCall& call) {
  GB_CO_TRY(const auto body, co_await read_body(call));
  GB_CO_TRY(auto spec, read_run(body));
  const auto run = call.parts.code.run(call.caller, call.info.id, std::move(spec));
  call.exchange.on_client_gone([weak = std::weak_ptr(run)] {
    if (const auto gone = weak.lock()) gone->stop();
  });
  GB_CO_TRY(auto event, co_await run->first(kPatience));
  auto& response = call.exchange.response;
  GB_CO_TRYV(co_await response.begin(200, http::stream_headers(open_headers(), "application/x-ndjson")));
  while (true) {
    const std::string line = event_line(event, std::chrono::system_clock::now());
    GB_CO_TRYV(co_await response.write(line));
    if (event.kind == code::Event::Kind::kEnd) co_return co_await response.end();
    GB_CO_TRY(event, co_await run->next());
  }
}

Async<void> list_contexts(DaemonCall& call) {
  GB_CO_TRY(const auto contexts, co_await call.parts.code.contexts(call.caller, call.info.id));
  bj::array out;
  for (const auto& context : contexts) out.push_back(view(context));
  co_return co_await send_json(call, std::move(out));
}

Async<void> create_context(DaemonCall& call) {
  GB_CO_TRY(const auto body, co_await read_body(call));
  json::Reader r(body);
  GB_CO_TRY(const auto language, r.string("language", 0, 64).or_default(""));
  GB_CO_TRY(const auto cwd, r.string("cwd", 0, 4095).or_default(""));
  GB_CO_TRY(const auto context,
            co_await call.parts.code.create(call.caller, call.info.id, language, cwd));
  co_return co_await send_json(call, view(context));
}

Async<void> one_context(DaemonCall& call, std::string_view rest) {
  constexpr std::string_view kRestart = "/restart";
  const bool restarts = rest.ends_with(kRestart) && call.request().method == "POST";
  if (!restarts && call.request().method != "DELETE")
    co_return fail(Code::kRouteNotFound, "nothing is served there");
  const auto id =
      http::percent_decode(restarts ? rest.substr(0, rest.size() - kRestart.size()) : rest);
  if (!id || id->empty() || id->find('/') != id->npos)
    co_return fail(Code::kNotFound, "no such context");
  if (!restarts) {
    GB_CO_TRYV(co_await call.parts.code.remove(call.caller, call.info.id, *id));
    co_return co_await call.exchange.response.send(204, open_headers(), "");
  }
  GB_CO_TRY(const auto context, co_await call.parts.code.restart(call.caller, call.info.id, *id));
  co_return co_await send_json(call, view(context));
}

Async<void> route(DaemonCall& call) {
  const http::Request& request = call.request();
  const bool reads = request.method == "GET" || request.method == "HEAD",
             posts = request.method == "POST";
  if (request.path == "/health" && reads) co_return co_await send_json(call, "OK");
  if (request.path == "/execute" && posts) co_return co_await execute(call);
  if (request.path == kContexts && reads) co_return co_await list_contexts(call);
  if (request.path == kContexts && posts) co_return co_await create_context(call);
  if (request.path.starts_with("/contexts/"))
    co_return co_await one_context(call,
                                   std::string_view(request.path).substr(kContexts.size() + 1));
  co_return fail(Code::kRouteNotFound, "nothing is served at " + utf8_lossy(request.path));
}

// Clients take the text of an answer as it is; 404 and 502 they know.
int status_of(const Error& error) {
  if (error.code == Code::kUnsupported) return 400;  // a language that the template does not have
  return glovebox::info(error.code).http_status;
}

}  // namespace

Async<void> serve_interpreter(DaemonCall& call) {
  auto done = co_await route(call);
  if (done || call.exchange.response.head_sent()) co_return done;
  const Code code = done.error().code;
  if (code == Code::kSandboxEnded || code == Code::kSandboxNotFound ||
      code == Code::kSandboxNotReady || code == Code::kCancelled)
    co_return done;
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", "text/plain; charset=utf-8");
  call.exchange.response.set_reason(done.error().message);  // all that the JavaScript client shows
  co_return co_await call.exchange.response.send(status_of(done.error()), std::move(headers),
                                                 utf8_lossy(done.error().message));
}

}  // namespace glovebox::api::e2b
