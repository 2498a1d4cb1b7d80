// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>

#include "api/mcp/dispatch.h"
#include "api/mcp/mcp.h"
#include "http/sse.h"
#include "metrics/metrics.h"

namespace glovebox::api::mcp {
namespace {

constexpr const char* kSessionHeader = "Mcp-Session-Id";
constexpr const char* kVersionHeader = "MCP-Protocol-Version";
// A response that takes longer comes as a stream of events, if the client takes one.
constexpr std::chrono::milliseconds kQuick{500};

// A web page somewhere that made its name mean this host must not get in, even with a key. Programs send no Origin.
bool is_allowed_origin(const http::Request& request) {
  const auto origin = request.header("Origin");
  if (!origin) return true;
  const size_t scheme = origin->find("://");
  if (scheme == std::string::npos) return false;
  const std::string host = preview::host_name(std::string_view(*origin).substr(scheme + 3));
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

bool accepts(const http::Request& request, std::string_view type) {
  for (const auto& [name, value] : request.headers) {
    if (!http::same_name(name, "Accept")) continue;
    for (const std::string& item : split(value, ',')) {
      const size_t begin = item.find_first_not_of(' ');
      if (begin != std::string::npos && http::same_name(item.substr(begin, item.find_first_of("; ", begin) - begin), type))
        return true;
    }
  }
  return false;
}

Result<Version> version_of(const http::Request& request) {
  const auto name = request.header(kVersionHeader);
  if (!name) return kAssumedVersion;
  if (const auto version = version_from_name(*name)) return *version;
  return fail(Code::kInvalidArgument, std::string(kVersionHeader) + ": this server speaks 2025-11-25, 2025-06-18 and 2025-03-26",
              {{"field", kVersionHeader}});
}

Result<void> check_request(const http::Request& request) {
  if (!is_allowed_origin(request))
    return fail(Code::kForbidden, "Origin: pages of this origin may not use the MCP endpoint", {{"field", "Origin"}});
  return check_query(request, {});
}

Async<void> send_rpc_error(Call& call, int status, const RpcError& error) {
  return call.send_json(status, error_text(error));
}

// Errors of the transport are JSON-RPC errors without an id.
Async<void> send_error(http::Exchange& exchange, const Error& error, http::Headers headers) {
  headers.emplace_back("Content-Type", "application/json");
  if (error.code == Code::kUnauthenticated) headers.emplace_back("WWW-Authenticate", "Bearer realm=\"glovebox\"");
  if (error.code == Code::kMethodNotAllowed) headers.emplace_back("Allow", "POST, DELETE, GET");
  const auto retry = error.details.find("retry_after");
  if (info(error.code).retryable) headers.emplace_back("Retry-After", retry == error.details.end() ? "1" : retry->second);
  return exchange.response.send(info(error.code).http_status, std::move(headers), error_text(rpc_error(error)));
}

bool has_requests(const Incoming& incoming) {
  return std::ranges::any_of(incoming.messages, [](const Message& m) { return m.kind == Message::Kind::kRequest; });
}

// `last`: the number of the last event that the client has; absent: it has none.
Async<void> send_events(Call& call, const Session& session, Stream& stream, std::optional<uint64_t> last) {
  http::EventStream events(call.exchange.response);
  GB_CO_TRYV(co_await events.begin(call.headers()));
  // Clients of older versions take an event without data for a broken message.
  uint64_t from = last.value_or(0);
  if (!last && session.version() >= Version::k2025_11_25) GB_CO_TRYV(co_await events.event("", "", event_id(stream, 0)));
  while (!call.exchange.client_gone()) {
    if (const auto* entry = stream.next(from)) {
      from = entry->number;
      const std::string text = entry->text;
      GB_CO_TRYV(co_await events.event("message", text, event_id(stream, from)));
    } else if (stream.is_complete()) {
      co_return co_await events.end();
    } else if (!co_await stream.wait(after(http::EventStream::kKeepalive))) {
      GB_CO_TRYV(co_await events.keepalive());
    }
  }
  co_return fail(Code::kCancelled, "the client went away");
}

// A stream whose client has gone: until it is complete, and a while longer.
Awaitable<void> keep_for_later(Sessions& sessions, SessionPtr session, StreamPtr stream) {
  while (!stream->is_complete()) co_await stream->wait(Deadline::max());
  sessions.keep(session, stream);
}

}  // namespace

Server::Server(Parts parts) : parts_(std::move(parts)), sessions_(parts_.service, parts_.settings, parts_.executor) {}

void Server::add_routes(http::Router& router) {
  const auto add = [&](std::string_view method, Async<void> (Server::*handler)(Call&)) {
    add_route(
        router, parts_.keys, method, "/mcp",
        [this, handler](Call& call) -> Async<void> {
          GB_CO_TRYV(check_request(call.request()));
          co_return co_await (this->*handler)(call);
        },
        send_error);
  };
  add("POST", &Server::post);
  add("GET", &Server::get);
  add("DELETE", &Server::remove);
  metrics::registry().gauge("glovebox_mcp_sessions", "Open MCP sessions.",
                            [this] { return metrics::Registry::Samples{{{}, static_cast<double>(sessions_.size())}}; });
}

Async<void> Server::post(Call& call) {
  const auto type = call.request().header("Content-Type").value_or("");
  if (!http::same_name(type.substr(0, type.find_first_of("; ")), "application/json")) {
    co_return fail(Code::kInvalidArgument, "Content-Type: must be application/json", {{"field", "Content-Type"}});
  }
  GB_CO_TRY(const Version version, version_of(call.request()));
  GB_CO_TRY(const std::string body, co_await call.exchange.body.read_all(kMaxMessageBytes));
  auto incoming = parse_incoming(body);
  if (!incoming) co_return co_await send_rpc_error(call, 400, incoming.error());
  const auto id = call.request().header(kSessionHeader);
  const Message& first = incoming->messages.front();
  if (!id && !incoming->is_batch && first.kind == Message::Kind::kRequest && first.method == "initialize")
    co_return co_await begin(call, first);
  if (!id)
    co_return fail(Code::kInvalidArgument, std::string(kSessionHeader) + ": is required; a session begins with initialize",
                   {{"field", kSessionHeader}});
  auto session = sessions_.find(call.caller, *id, version);
  if (!session) co_return fail(Code::kNotFound, "there is no such session; begin a new one with initialize");
  if (incoming->is_batch && session->version() != Version::k2025_03_26) {
    co_return co_await send_rpc_error(
        call, 400, {RpcError::kInvalidRequest, "this version of the protocol has no batches", nullptr, nullptr});
  }
  co_return co_await serve(call, std::move(session), std::move(*incoming));
}

Async<void> Server::begin(Call& call, const Message& message) {
  GB_CO_TRY(const auto session, sessions_.begin(call.caller, negotiate(message.params)));
  auto headers = call.headers();
  headers.emplace_back(kSessionHeader, session->id());
  headers.emplace_back("Content-Type", "application/json");
  auto answer = response_text(message.id, initialize_result(parts_, session->version()));
  co_return co_await call.exchange.response.send(200, std::move(headers), std::move(answer));
}

Async<void> Server::serve(Call& call, SessionPtr session, Incoming incoming) {
  using Kind = Message::Kind;
  if (!has_requests(incoming)) {
    for (const Message& message : incoming.messages) {
      if (message.kind == Kind::kNotification) take_notification(*session, message);
    }
    co_return co_await call.exchange.response.send(202, call.headers(), "");
  }
  const auto requests = std::ranges::count_if(incoming.messages, [](const Message& m) { return m.kind == Kind::kRequest; });
  const auto stream = session->open_stream(static_cast<size_t>(requests));
  for (Message& message : incoming.messages) {
    if (message.kind == Kind::kNotification) take_notification(*session, message);
    if (message.kind == Kind::kRequest) start_request(call, session, std::move(message), stream);
  }
  co_return co_await deliver(call, std::move(session), stream, incoming.is_batch);
}

void Server::start_request(const Call& call, const SessionPtr& session, Message message, const StreamPtr& stream) {
  auto running = session->begin_request(message.id);
  if (!running) {
    RpcError error = rpc_error(running.error());
    error.id = message.id;
    return stream->respond(error_text(error));
  }
  spawn(parts_.executor, "mcp.request",
        run_request(parts_, session, call.caller, preview::outside_of(call.request()), std::move(message), *running, stream));
}

// One JSON answer when it is there soon or the client takes nothing else, else events.
Async<void> Server::deliver(Call& call, SessionPtr session, StreamPtr stream, bool as_array) {
  const bool takes_events = accepts(call.request(), "text/event-stream");
  const Deadline quick = after(kQuick);
  while (!stream->is_complete() && (!takes_events || (stream->has_only_responses() && Clock::now() < quick))) {
    co_await stream->wait(takes_events ? quick : after(http::EventStream::kKeepalive));
    if (call.exchange.client_gone()) break;
  }
  const bool is_answer = stream->is_complete() && (!takes_events || stream->has_only_responses());
  if (!is_answer && !takes_events) {  // only a client that has gone gets here
    spawn(parts_.executor, "mcp.keep", keep_for_later(sessions_, session, stream));
    co_return fail(Code::kCancelled, "the client went away");
  }
  if (!is_answer) co_return co_await stream_events(call, std::move(session), stream, std::nullopt);
  std::string text;
  for (const auto* entry = stream->next(0); entry != nullptr; entry = stream->next(entry->number)) {
    if (entry->is_response) text += (text.empty() ? "" : ",") + entry->text;
  }
  session->close_stream(stream->id());
  if (text.empty()) co_return co_await call.exchange.response.send(202, call.headers(), "");  // cancelled: there is no response
  co_return co_await call.send_json(200, as_array ? "[" + text + "]" : text);
}

Async<void> Server::stream_events(Call& call, SessionPtr session, StreamPtr stream, std::optional<uint64_t> last) {
  const auto sent = co_await send_events(call, *session, *stream, last);
  // However that ended, the client may not have got all of it.
  if (stream->is_complete()) {
    sessions_.keep(session, stream);
  } else {
    spawn(parts_.executor, "mcp.keep", keep_for_later(sessions_, session, stream));
  }
  co_return sent;
}

// Nothing comes from here unasked, so the one use of GET is to fetch the rest of a stream whose connection broke.
Async<void> Server::get(Call& call) {
  GB_CO_TRY(const Version version, version_of(call.request()));
  const auto id = call.request().header(kSessionHeader);
  if (!id) co_return fail(Code::kInvalidArgument, std::string(kSessionHeader) + ": is required", {{"field", kSessionHeader}});
  const auto session = sessions_.find(call.caller, *id, version);
  if (!session) co_return fail(Code::kNotFound, "there is no such session; begin a new one with initialize");
  const auto place = parse_event_id(call.request().header("Last-Event-ID").value_or(""));
  const auto stream = place ? session->find_stream(place->stream) : nullptr;
  if (!stream || (stream->is_complete() && stream->next(place->number) == nullptr)) {
    co_return fail(Code::kMethodNotAllowed,
                   "there is nothing to listen to: this server sends nothing unasked, and no such stream is kept");
  }
  co_return co_await stream_events(call, session, stream, place->number);
}

Async<void> Server::remove(Call& call) {
  const auto id = call.request().header(kSessionHeader);
  if (!id) co_return fail(Code::kInvalidArgument, std::string(kSessionHeader) + ": is required", {{"field", kSessionHeader}});
  const auto session = sessions_.find(call.caller, *id, kAssumedVersion);
  if (!session) co_return fail(Code::kNotFound, "there is no such session");
  co_await sessions_.end(session);
  co_return co_await call.exchange.response.send(204, call.headers(), "");
}

}  // namespace glovebox::api::mcp
