// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>
#include <csignal>

#include "api/v1/internal.h"
#include "api/v1/views.h"
#include "http/sse.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;
using sandbox::Chunk;
using sandbox::ExecutionPtr;
using sandbox::Millis;

Result<int> parse_signal(json::Reader& reader, std::string_view field) {
  const auto* value = reader.any(field);
  if (value == nullptr) return fail(reader.error(field, "is required"));
  if (value->is_string()) {
    const std::string_view text(value->get_string());
    for (int number = 1; number <= 64; ++number) {
      const std::string_view name = signal_name(number);
      if (!name.empty() && (text == name || text == name.substr(3))) return number;
    }
    if (const auto number = parse_int(text); number && *number >= 1 && *number <= 64) return static_cast<int>(*number);
  } else if (const auto* number = value->if_int64(); number != nullptr && *number >= 1 && *number <= 64) {
    return static_cast<int>(*number);
  }
  return fail(reader.error(field, "must be a signal's name, such as TERM, or its number, 1 to 64"));
}

std::vector<Chunk> by_characters(std::vector<Chunk> chunks, bool final) {
  std::vector<Chunk> out;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Chunk& chunk = chunks[i];
    const size_t whole = utf8_complete_prefix(chunk.data);
    if (whole == chunk.data.size()) {
      out.push_back(std::move(chunk));
      continue;
    }
    Chunk tail{chunk.stream, chunk.cursor + whole, chunk.data.substr(whole)};
    chunk.data.resize(whole);
    if (!chunk.data.empty()) out.push_back(std::move(chunk));
    if (i + 1 < chunks.size() || final) out.push_back(std::move(tail));
  }
  return out;
}

namespace {

constexpr size_t kMaxReturned = 8 << 20;     // of each stream, with wait
constexpr size_t kMaxJsonOutput = 1 << 20;

Async<ExecutionPtr> find(const Parts& parts, Call& call) {
  return parts.service->execution(call.caller, call.param("id"), call.param("eid"));
}

Result<void> read_stdin_fields(json::Reader& r, sandbox::ExecSpec* spec) {
  GB_TRY(spec->keep_stdin, r.boolean("stdin").or_default(false));
  GB_TRY(spec->stdin_data, r.content("stdin_text").optional());
  GB_TRY(const auto encoded, r.string("stdin_b64").optional());
  if (!encoded) return {};
  if (spec->stdin_data) return fail(r.error("stdin_b64", "cannot be given together with stdin_text"));
  spec->stdin_data = base64_decode(*encoded);
  if (!spec->stdin_data) return fail(r.error("stdin_b64", "is not base64"));
  return {};
}

Result<sandbox::ExecSpec> read_start(const bj::value& body) {
  json::Reader r(body);
  sandbox::ExecSpec spec;
  GB_TRY(spec.argv, r.strings("argv", 100'000).or_default({}));
  GB_TRY(const auto command, r.string("command", 1).optional());
  if (spec.argv.empty() == !command) return fail(r.error(r.has("argv") ? "argv" : "command", "give either argv (at least one word) or command"));
  spec.command = command.value_or("");
  GB_TRY(spec.env, r.string_map("env", 10'000).or_default({}));
  GB_TRY(const auto secrets, r.string_map("secrets", 10'000).or_default({}));  // nothing of an execution's environment is kept or shown
  for (const auto& [name, value] : secrets) {
    if (!spec.env.try_emplace(name, value).second) return fail(r.error("secrets", "holds a name that is in env as well"));
  }
  for (const auto& [key, value] : spec.env) {
    if (key.empty() || key.find('=') != std::string::npos) return fail(r.error("env", "holds an impossible name"));
  }
  GB_TRY(spec.cwd, r.string("cwd", 1, 4095).or_default(""));
  GB_TRY(spec.user, r.string("user", 1, 64).or_default(""));
  GB_TRY(spec.name, r.string("name", 0, 128).or_default(""));
  GB_TRYV(read_stdin_fields(r, &spec));
  if (spec.keep_stdin && spec.stdin_data) return fail(r.error("stdin", "cannot stay open when its data is given at once"));
  if (r.has("pty")) {
    GB_TRY(auto pty, r.object("pty"));
    sandbox::Pty p;
    GB_TRY(const auto cols, pty.integer("cols", 1, 65535).or_default(80));
    GB_TRY(const auto rows, pty.integer("rows", 1, 65535).or_default(24));
    GB_TRY(p.term, pty.string("term", 1, 64).or_default(""));
    GB_TRYV(pty.done());
    p.cols = static_cast<int>(cols);
    p.rows = static_cast<int>(rows);
    spec.pty = p;
  }
  constexpr int64_t kMaxMs = 365LL * 24 * 3600 * 1000;
  GB_TRY(const auto timeout, r.integer("timeout_ms", 0, kMaxMs).or_default(0));
  GB_TRY(const auto grace, r.integer("kill_grace_ms", 0, kMaxMs).or_default(0));
  spec.timeout = Millis(timeout);
  spec.kill_grace = Millis(grace);
  (void)r.any("pty");
  GB_TRYV(r.done());
  return spec;
}

// The answer of a call that waits: nothing is sent while it is quick; after that the head, and white space now and then.
class SlowAnswer {
 public:
  SlowAnswer(Call& call, http::Headers headers) : call_(call), headers_(std::move(headers)) {
    headers_.emplace_back("Content-Type", "application/json");
  }
  // Waits for the end until `deadline`, keeping the connection awake.
  Async<void> wait(const ExecutionPtr& execution, Deadline deadline) {
    while (!execution->ended() && Clock::now() < deadline) {
      co_await execution->wait(std::min(deadline, after(kKeepalive)));
      if (execution->ended() || Clock::now() >= deadline) break;
      GB_CO_TRYV(co_await keep_awake());
    }
    co_return Result<void>();
  }
  Async<void> send(std::string text) {
    if (!begun_) co_return co_await call_.exchange.response.send(200, std::move(headers_), std::move(text));
    GB_CO_TRYV(co_await call_.exchange.response.write(text));
    co_return co_await call_.exchange.response.end();
  }

 private:
  Async<void> keep_awake() {
    if (!begun_) {
      GB_CO_TRYV(co_await call_.exchange.response.begin(200, std::move(headers_)));
      begun_ = true;
    }
    co_return co_await call_.exchange.response.write(" ");
  }

  Call& call_;
  http::Headers headers_;
  bool begun_ = false;
};

// Both streams, each up to kMaxReturned; tells whether that was all that is kept.
struct Collected {
  std::string streams[2];
  bool is_all = true;
};
Async<Collected> collect(const ExecutionPtr& execution) {
  Collected out;
  uint64_t cursor = 0;
  while (true) {
    GB_CO_TRY(const auto chunks, co_await execution->read(cursor, kMaxJsonOutput));
    if (chunks.empty()) co_return out;
    for (const Chunk& chunk : chunks) {
      std::string& stream = out.streams[chunk.stream == sandbox::Stream::kStderr];
      const size_t room = kMaxReturned - stream.size();
      stream.append(chunk.data, 0, room);
      if (chunk.data.size() > room) out.is_all = false;
      cursor = chunk.cursor + chunk.data.size();
    }
  }
}

Async<void> run_and_wait(Call& call, http::Headers headers, ExecutionPtr execution) {
  SlowAnswer answer(call, std::move(headers));
  GB_CO_TRYV(co_await answer.wait(execution, Deadline::max()));
  GB_CO_TRY(const auto output, co_await collect(execution));
  auto out = view(execution->info());
  put_bytes(out, "stdout", output.streams[0]);
  put_bytes(out, "stderr", output.streams[1]);
  if (!output.is_all) out["output"].as_object()["truncated"] = true;
  co_return co_await answer.send(json::to_text(out));
}

Async<void> start(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"wait"}));
  GB_CO_TRY(const bool wait, query_bool(call.request(), "wait", false));
  GB_CO_TRY(const auto body, co_await read_json(call));
  GB_CO_TRY(auto spec, read_start(body));
  spec.detached = !wait;
  GB_CO_TRY(const auto key, idempotency_key(call.request()));
  if (key) {
    spec.idempotency_key = *key;
    spec.request = json::to_text(body);
  }
  GB_CO_TRY(const auto started, co_await parts.service->execute_once(call.caller, call.param("id"), std::move(spec)));
  const ExecutionPtr& execution = started.execution;
  auto headers = call.headers();
  if (started.replayed) headers.emplace_back("Idempotency-Replayed", "true");
  if (wait) co_return co_await run_and_wait(call, std::move(headers), execution);
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Location", "/v1/sandboxes/" + call.param("id") + "/executions/" + execution->info().id);
  co_return co_await call.exchange.response.send(201, std::move(headers), json::to_text(view(execution->info())));
}

Async<void> list(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"state", "limit", "cursor"}));
  GB_CO_TRY(const size_t limit, query_limit(call.request()));
  std::optional<bool> running;
  if (const auto state = call.request().query_value("state")) {
    if (*state != "running" && *state != "ended") {
      co_return fail(Code::kInvalidArgument, "state: must be running or ended", {{"field", "state"}});
    }
    running = *state == "running";
  }
  const std::string cursor = call.request().query_value("cursor").value_or("");
  GB_CO_TRY(const auto page, parts.service->executions(call.caller, call.param("id"), running, limit, cursor));
  bj::array items;
  for (const auto& info : page.items) items.push_back(view(info));
  const bj::object out{{"executions", std::move(items)}, {"next_cursor", page_cursor(page.next_cursor)}};
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> wait(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"timeout_ms"}));
  GB_CO_TRY(const int64_t timeout, query_int(call.request(), "timeout_ms", 0, 3'600'000, 60'000));
  GB_CO_TRY(auto execution, co_await find(parts, call));
  SlowAnswer answer(call, call.headers());
  GB_CO_TRYV(co_await answer.wait(execution, after(Millis(timeout))));
  co_return co_await answer.send(json::to_text(view(execution->info())));
}

// What a reader of output asked for.
struct OutputQuery {
  uint64_t cursor = 0;
  std::optional<sandbox::Stream> stream;
  std::string format;
  Millis wait{0};
  bool follow = false;
};

Result<OutputQuery> read_output_query(const http::Request& request) {
  GB_TRYV(check_query(request, {"cursor", "stream", "format", "wait_ms", "follow"}));
  OutputQuery q;
  GB_TRY(const int64_t cursor, query_int(request, "cursor", 0, INT64_MAX, 0));
  q.cursor = static_cast<uint64_t>(cursor);
  q.format = request.query_value("format").value_or("json");
  if (q.format != "json" && q.format != "sse" && q.format != "raw") {
    return fail(Code::kInvalidArgument, "format: must be json, sse or raw", {{"field", "format"}});
  }
  const std::string stream = request.query_value("stream").value_or("both");
  if (stream == "stdout") q.stream = sandbox::Stream::kStdout;
  if (stream == "stderr") q.stream = sandbox::Stream::kStderr;
  if (!q.stream && stream != "both") return fail(Code::kInvalidArgument, "stream: must be stdout, stderr or both", {{"field", "stream"}});
  GB_TRY(const int64_t wait_ms, query_int(request, "wait_ms", 0, 3'600'000, 0));
  q.wait = Millis(wait_ms);
  GB_TRY(q.follow, query_bool(request, "follow", false));
  if (const auto last = request.header("Last-Event-ID")) {
    const auto number = parse_int(*last);
    if (!number || *number < 0) return fail(Code::kInvalidArgument, "Last-Event-ID: must be a cursor", {{"field", "Last-Event-ID"}});
    if (q.format == "sse") q.cursor = static_cast<uint64_t>(*number);
  }
  return q;
}

bool wanted(const OutputQuery& q, const Chunk& chunk) { return !q.stream || chunk.stream == *q.stream; }

// Chunks that say how much was dropped behind what is kept; only once the numbers are final.
std::vector<bj::object> dropped_chunks(const OutputQuery& q, const sandbox::ExecInfo& info) {
  std::vector<bj::object> out;
  if (!info.outcome) return out;
  const std::pair<sandbox::Stream, uint64_t> streams[] = {{sandbox::Stream::kStdout, info.dropped_stdout},
                                                          {sandbox::Stream::kStderr, info.dropped_stderr}};
  for (const auto& [stream, bytes] : streams) {
    if (bytes == 0 || (q.stream && stream != *q.stream)) continue;
    out.push_back({{"stream", stream == sandbox::Stream::kStdout ? "stdout" : "stderr"}, {"cursor", info.kept_bytes}, {"dropped_bytes", bytes}});
  }
  return out;
}

// One step of reading text: whole characters only, and where to go on.
struct Step {
  std::vector<Chunk> chunks;
  uint64_t next = 0;      // cursor after what was taken
  uint64_t seen = 0;      // cursor after what was looked at, unfinished characters included
  bool at_end = false;    // the execution has ended and nothing is left
};
Async<Step> take(const ExecutionPtr& execution, uint64_t cursor) {
  const bool ended_before = execution->ended();
  GB_CO_TRY(auto chunks, co_await execution->read(cursor, kMaxJsonOutput));
  Step step;
  step.seen = chunks.empty() ? cursor : chunks.back().cursor + chunks.back().data.size();
  const bool reaches_end = ended_before && step.seen >= execution->info().kept_bytes;
  step.chunks = by_characters(std::move(chunks), reaches_end);
  step.next = step.chunks.empty() ? cursor : step.chunks.back().cursor + step.chunks.back().data.size();
  step.at_end = reaches_end;
  co_return step;
}

Async<void> output_json(Call& call, const OutputQuery& q, ExecutionPtr execution) {
  const Deadline deadline = after(q.wait);
  GB_CO_TRY(auto step, co_await take(execution, q.cursor));
  while (step.chunks.empty() && !step.at_end && Clock::now() < deadline) {
    co_await execution->wait_output(step.seen, deadline);
    GB_CO_TRY(step, co_await take(execution, q.cursor));
  }
  bj::array chunks;
  for (const Chunk& chunk : step.chunks) {
    if (wanted(q, chunk)) chunks.push_back(view(chunk));
  }
  if (step.at_end) {
    for (auto& dropped : dropped_chunks(q, execution->info())) chunks.push_back(std::move(dropped));
  }
  const bj::object out{{"chunks", std::move(chunks)}, {"next_cursor", step.next}, {"ended", step.at_end},
                       {"truncated", execution->info().truncated()}};
  co_return co_await call.send_json(200, json::to_text(out));
}

Async<void> output_sse(Call& call, OutputQuery q, ExecutionPtr execution) {
  http::EventStream events(call.exchange.response);
  GB_CO_TRYV(co_await events.begin(call.headers()));
  while (!call.exchange.client_gone()) {
    GB_CO_TRY(const auto step, co_await take(execution, q.cursor));
    for (const Chunk& chunk : step.chunks) {
      if (!wanted(q, chunk)) continue;
      GB_CO_TRYV(co_await events.event("output", json::to_text(view(chunk)), std::to_string(chunk.cursor + chunk.data.size())));
    }
    q.cursor = step.next;
    if (step.at_end) break;
    if (!step.chunks.empty()) continue;
    const bool more = co_await execution->wait_output(step.seen, after(kKeepalive));
    if (!more) GB_CO_TRYV(co_await events.keepalive());
  }
  for (const auto& dropped : dropped_chunks(q, execution->info())) {
    GB_CO_TRYV(co_await events.event("output", json::to_text(dropped), std::to_string(q.cursor)));
  }
  GB_CO_TRYV(co_await events.event("exit", json::to_text(view(execution->info())), std::to_string(q.cursor)));
  co_return co_await events.end();
}

Async<void> output_raw(Call& call, OutputQuery q, ExecutionPtr execution) {
  const uint64_t end = execution->info().kept_bytes;
  auto headers = call.headers();
  headers.emplace_back("Content-Type", "application/octet-stream");
  if (!q.follow) {
    headers.emplace_back("Glovebox-Next-Cursor", std::to_string(std::max(q.cursor, end)));
    headers.emplace_back("Glovebox-Truncated", execution->info().truncated() ? "true" : "false");
  }
  auto& response = call.exchange.response;
  GB_CO_TRYV(co_await response.begin(200, std::move(headers)));
  while (!call.exchange.client_gone()) {
    const bool ended = execution->ended();
    const uint64_t limit = q.follow ? kPieceBytes : std::min<uint64_t>(kPieceBytes, end - std::min(end, q.cursor));
    GB_CO_TRY(const auto chunks, co_await execution->read(q.cursor, limit));
    for (const Chunk& chunk : chunks) {
      if (wanted(q, chunk)) GB_CO_TRYV(co_await response.write(chunk.data));
      q.cursor = chunk.cursor + chunk.data.size();
    }
    if (!q.follow && q.cursor >= end) break;
    if (!chunks.empty()) continue;
    if (ended) break;
    co_await execution->wait_output(q.cursor, after(kKeepalive));
  }
  co_return co_await response.end();
}

Async<void> output(const Parts& parts, Call& call) {
  GB_CO_TRY(auto query, read_output_query(call.request()));
  GB_CO_TRY(auto execution, co_await find(parts, call));
  if (query.format == "sse") co_return co_await output_sse(call, query, execution);
  if (query.format == "raw") co_return co_await output_raw(call, query, execution);
  co_return co_await output_json(call, query, execution);
}

Async<void> write_stdin(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {"close"}));
  GB_CO_TRY(const bool close, query_bool(call.request(), "close", false));
  GB_CO_TRY(auto execution, co_await find(parts, call));
  uint64_t accepted = 0;
  GB_CO_TRYV(co_await execution->write_stdin(""));  // tells at once whether it is open
  while (true) {
    GB_CO_TRY(std::string piece, co_await call.exchange.body.read_some(kPieceBytes));
    if (piece.empty()) break;
    const size_t size = piece.size();
    GB_CO_TRYV(co_await execution->write_stdin(std::move(piece)));
    accepted += size;
  }
  if (close) GB_CO_TRYV(co_await execution->close_stdin());
  co_return co_await call.send_json(200, json::to_text(bj::object{{"accepted_bytes", accepted}}));
}

struct SignalRequest {
  int number = SIGTERM;
  bool tree = false;
};
Async<SignalRequest> read_signal(Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  SignalRequest out;
  GB_CO_TRY(out.number, parse_signal(r, "signal"));
  GB_CO_TRY(out.tree, r.boolean("tree").or_default(false));
  GB_CO_TRYV(r.done());
  co_return out;
}

Async<void> send_execution(Call& call, const ExecutionPtr& execution) {
  co_return co_await call.send_json(200, json::to_text(view(execution->info())));
}

Async<void> signal(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto wanted_signal, co_await read_signal(call));
  GB_CO_TRY(auto execution, co_await find(parts, call));
  GB_CO_TRYV(co_await execution->signal(wanted_signal.number, wanted_signal.tree));
  co_return co_await send_execution(call, execution);
}

Async<void> resize(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto body, co_await read_json(call));
  json::Reader r(body);
  GB_CO_TRY(const auto cols, r.integer("cols", 1, 65535).required());
  GB_CO_TRY(const auto rows, r.integer("rows", 1, 65535).required());
  GB_CO_TRYV(r.done());
  GB_CO_TRY(auto execution, co_await find(parts, call));
  GB_CO_TRYV(co_await execution->resize(static_cast<int>(cols), static_cast<int>(rows)));
  co_return co_await send_execution(call, execution);
}

Async<void> processes(const Parts& parts, Call& call) {
  GB_CO_TRY(const auto list_of, co_await parts.service->processes(call.caller, call.param("id")));
  bj::array items;
  for (const auto& process : list_of) items.push_back(view(process));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"processes", std::move(items)}}));
}

Async<void> signal_process(const Parts& parts, Call& call) {
  const auto pid = parse_int(call.param("pid"));
  if (!pid || *pid < 1) co_return fail(Code::kInvalidArgument, "pid: must be a positive integer", {{"field", "pid"}});
  GB_CO_TRY(const auto wanted_signal, co_await read_signal(call));
  GB_CO_TRYV(co_await parts.service->signal_process(call.caller, call.param("id"), *pid, wanted_signal.number, wanted_signal.tree));
  co_return co_await call.send_json(200, "{}");
}

}  // namespace

void add_execution_routes(http::Router& router, const Parts& parts) {
  const auto& keys = *parts.keys;
  const std::string executions = "/v1/sandboxes/{id}/executions", one = executions + "/{eid}";
  const auto add = [&](std::string_view method, const std::string& pattern, Async<void> (*handler)(const Parts&, Call&)) {
    add_route(router, keys, method, pattern, [&parts, handler](Call& call) { return handler(parts, call); });
  };
  add("POST", executions, start);
  add("GET", executions, list);
  add("GET", one, [](const Parts& p, Call& call) -> Async<void> {
    GB_CO_TRY(const auto execution, co_await find(p, call));
    co_return co_await send_execution(call, execution);
  });
  add("GET", one + "/wait", wait);
  add("GET", one + "/output", output);
  add("POST", one + "/stdin", write_stdin);
  add("POST", one + "/signal", signal);
  add("POST", one + "/kill", [](const Parts& p, Call& call) -> Async<void> {
    GB_CO_TRY(const auto execution, co_await find(p, call));
    GB_CO_TRYV(co_await execution->kill());
    co_return co_await send_execution(call, execution);
  });
  add("POST", one + "/resize", resize);
  add("GET", one + "/attach", [](const Parts& p, Call& call) -> Async<void> {
    GB_CO_TRYV(check_query(call.request(), {"cursor"}));
    GB_CO_TRY(const int64_t cursor, query_int(call.request(), "cursor", 0, INT64_MAX, 0));
    GB_CO_TRY(auto execution, co_await find(p, call));
    co_return co_await attach(call, std::move(execution), static_cast<uint64_t>(cursor));
  });
  add("GET", "/v1/sandboxes/{id}/processes", processes);
  add("POST", "/v1/sandboxes/{id}/processes/{pid}/signal", signal_process);
}

}  // namespace glovebox::api::v1
