// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/v1/internal.h"
#include "base/text.h"
#include "code/interpreter.h"
#include "http/sse.h"

// Code that runs cell by cell: one answer at the end, or events as they come.
namespace glovebox::api::v1 {
namespace {

namespace bj = boost::json;
using code::Event;
using Kind = code::Event::Kind;

constexpr std::chrono::seconds kPatience{60};  // clients give up after 300 s
constexpr size_t kMaxCodeBody = 36 << 20;
constexpr size_t kMaxReturned = 8 << 20;  // of each stream, in one JSON answer
constexpr size_t kMaxResults = 32 << 20;  // of all results together, likewise
constexpr int64_t kMaxMs = 365LL * 24 * 3600 * 1000;

Result<code::RunSpec> read_run(const bj::value& body) {
  json::Reader r(body);
  code::RunSpec spec;
  GB_TRY(spec.code, r.content("code", 32 << 20).required());
  GB_TRY(spec.language, r.string("language", 1, 64).or_default(""));
  GB_TRY(spec.context, r.string("context", 1, 128).or_default(""));
  if (!spec.language.empty() && !spec.context.empty())
    return fail(r.error("language", "cannot be given together with context, which has one"));
  GB_TRY(spec.env, r.string_map("env", 10'000).or_default({}));
  for (const auto& [name, value] : spec.env) {
    if (!code::is_variable_name(name))
      return fail(r.error("env", "holds a name that is none: letters, digits and _ only"));
  }
  GB_TRY(spec.cwd, r.string("cwd", 1, 4095).or_default(""));
  GB_TRY(const auto timeout, r.integer("timeout_ms", 0, kMaxMs).or_default(0));
  spec.timeout = sandbox::Millis(timeout);
  GB_TRYV(r.done());
  return spec;
}

bj::array names(const std::vector<std::string>& list) {
  return bj::array(list.begin(), list.end());
}

bj::object result_view(Event& event) {
  bj::object out{{"main", event.is_main}, {"data", std::move(event.data)}};
  if (!event.dropped.empty()) out["dropped"] = names(event.dropped);
  return out;
}

bj::object error_view(const Event& event) {
  bj::object out{{"kind", event.problem},
                 {"name", event.name},
                 {"value", event.value},
                 {"traceback", event.traceback}};
  if (event.signal) out["signal"] = *event.signal;
  return out;
}

bj::object view(Event& event) {
  switch (event.kind) {
    case Kind::kStart:
      return {{"type", "start"},
              {"context", event.context},
              {"language", event.language},
              {"execution_count", event.count}};
    case Kind::kStdout:
      return {{"type", "stdout"}, {"text", event.text}};
    case Kind::kStderr:
      return {{"type", "stderr"}, {"text", event.text}};
    case Kind::kResult: {
      bj::object out{{"type", "result"}};
      for (auto& field : result_view(event)) out[field.key()] = std::move(field.value());
      return out;
    }
    case Kind::kError: {
      bj::object out{{"type", "error"}};
      for (auto& field : error_view(event)) out[field.key()] = std::move(field.value());
      return out;
    }
    case Kind::kKeepalive:
      return {{"type", "keepalive"}};
    case Kind::kEnd:
      break;
  }
  return {{"type", "end"}, {"execution_count", event.count}};
}

bj::object view(const code::Context& context) {
  return {{"id", context.id},
          {"language", context.language},
          {"cwd", context.cwd},
          {"running", context.is_running}};
}

// ---- One answer ----

// Everything that a cell did, with a bound on each part.
class Summary {
 public:
  void take(Event& event) {
    if (event.kind == Kind::kStart) {
      out_["context"] = event.context;
      out_["language"] = event.language;
    } else if (event.kind == Kind::kStdout) {
      append(stdout_, event.text);
    } else if (event.kind == Kind::kStderr) {
      append(stderr_, event.text);
    } else if (event.kind == Kind::kResult) {
      take_result(event);
    } else if (event.kind == Kind::kError) {
      error_ = error_view(event);
    }
  }
  std::string text(int64_t count) {
    out_["execution_count"] = count;
    out_["stdout"] = utf8_lossy(stdout_);
    out_["stderr"] = utf8_lossy(stderr_);
    out_["results"] = std::move(results_);
    out_["error"] = std::move(error_);
    out_["truncated"] = truncated_;
    return json::to_text(out_);
  }

 private:
  void append(std::string& stream, const std::string& text) {
    const size_t room = std::min(text.size(), kMaxReturned - stream.size());
    stream.append(text, 0, utf8_complete_prefix(std::string_view(text).substr(0, room)));
    if (room < text.size()) truncated_ = true;
  }
  void take_result(Event& event) {
    const size_t size = json::to_text(event.data).size();
    if (size > kMaxResults - result_bytes_) {
      truncated_ = true;
      return;
    }
    result_bytes_ += size;
    results_.push_back(result_view(event));
  }

  bj::object out_{{"context", ""}, {"language", ""}};
  std::string stdout_, stderr_;
  bj::array results_;
  bj::value error_;
  size_t result_bytes_ = 0;
  bool truncated_ = false;
};

// White space keeps the connection awake while the cell runs for long.
Async<void> answer_once(Call& call, const std::shared_ptr<code::Run>& run, Event event) {
  auto& response = call.exchange.response;
  Summary summary;
  bool begun = false;
  while (event.kind != Kind::kEnd) {
    summary.take(event);
    if (event.kind == Kind::kKeepalive && !begun) {
      auto headers = call.headers();
      headers.emplace_back("Content-Type", "application/json");
      GB_CO_TRYV(co_await response.begin(200, std::move(headers)));
      begun = true;
    }
    if (event.kind == Kind::kKeepalive) GB_CO_TRYV(co_await response.write(" "));
    GB_CO_TRY(event, co_await run->next());
  }
  std::string text = summary.text(event.count);
  if (!begun) co_return co_await call.send_json(200, std::move(text));
  GB_CO_TRYV(co_await response.write(text));
  co_return co_await response.end();
}

// ---- Streams ----

Async<void> answer_lines(Call& call, const std::shared_ptr<code::Run>& run, Event event) {
  auto& response = call.exchange.response;
  GB_CO_TRYV(co_await response.begin(200, http::stream_headers(call.headers(), "application/x-ndjson")));
  while (true) {
    const std::string line = json::to_text(view(event)) + "\n";
    GB_CO_TRYV(co_await response.write(line));
    if (event.kind == Kind::kEnd) co_return co_await response.end();
    GB_CO_TRY(event, co_await run->next());
  }
}

Async<void> answer_events(Call& call, const std::shared_ptr<code::Run>& run, Event event) {
  http::EventStream events(call.exchange.response);
  GB_CO_TRYV(co_await events.begin(call.headers()));
  while (true) {
    const bj::object shown = view(event);
    const std::string data = json::to_text(shown);
    if (event.kind == Kind::kKeepalive)
      GB_CO_TRYV(co_await events.keepalive());
    else
      GB_CO_TRYV(co_await events.event(shown.at("type").get_string(), data));
    if (event.kind == Kind::kEnd) co_return co_await events.end();
    GB_CO_TRY(event, co_await run->next());
  }
}

Async<bj::value> read_body(Call& call) {
  GB_CO_TRY(const auto text, co_await call.exchange.body.read_all(kMaxCodeBody));
  co_return json::parse_object(text);
}

// A caller who goes away interrupts his cell.
Async<void> run(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {}));
  GB_CO_TRY(const auto body, co_await read_body(call));
  GB_CO_TRY(auto spec, read_run(body));
  const auto cell = parts.code->run(call.caller, call.param("id"), std::move(spec));
  call.exchange.on_client_gone([weak = std::weak_ptr(cell)] {
    if (const auto gone = weak.lock()) gone->stop();
  });
  GB_CO_TRY(auto first, co_await cell->first(kPatience));
  const auto& headers = call.request().headers;
  if (http::header_lists(headers, "Accept", "text/event-stream"))
    co_return co_await answer_events(call, cell, std::move(first));
  if (http::header_lists(headers, "Accept", "application/x-ndjson"))
    co_return co_await answer_lines(call, cell, std::move(first));
  co_return co_await answer_once(call, cell, std::move(first));
}

// ---- Contexts ----

Async<void> list_contexts(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {}));
  GB_CO_TRY(const auto contexts, co_await parts.code->contexts(call.caller, call.param("id")));
  bj::array items;
  for (const auto& context : contexts) items.push_back(view(context));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"contexts", std::move(items)}}));
}

Async<void> create_context(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {}));
  GB_CO_TRY(const auto body, co_await read_json(call, true));
  json::Reader r(body);
  GB_CO_TRY(const auto language, r.string("language", 1, 64).or_default("python"));
  GB_CO_TRY(const auto cwd, r.string("cwd", 1, 4095).or_default(""));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto context,
            co_await parts.code->create(call.caller, call.param("id"), language, cwd));
  co_return co_await call.send_json(201, json::to_text(view(context)));
}

Async<void> delete_context(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {}));
  GB_CO_TRYV(co_await parts.code->remove(call.caller, call.param("id"), call.param("context")));
  co_return co_await call.exchange.response.send(204, call.headers(), "");
}

Async<void> restart_context(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {}));
  GB_CO_TRY(const auto context,
            co_await parts.code->restart(call.caller, call.param("id"), call.param("context")));
  co_return co_await call.send_json(200, json::to_text(view(context)));
}

Async<void> interrupt_context(const Parts& parts, Call& call) {
  GB_CO_TRYV(check_query(call.request(), {}));
  GB_CO_TRY(const bool interrupted,
            co_await parts.code->interrupt(call.caller, call.param("id"), call.param("context")));
  co_return co_await call.send_json(200, json::to_text(bj::object{{"interrupted", interrupted}}));
}

}  // namespace

void add_code_routes(http::Router& router, const Parts& parts) {
  const std::string code = "/v1/sandboxes/{id}/code", one = code + "/contexts/{context}";
  const auto add = [&](std::string_view method, const std::string& pattern,
                       Async<void> (*handler)(const Parts&, Call&)) {
    add_route(router, *parts.keys, method, pattern,
              [&parts, handler](Call& call) { return handler(parts, call); });
  };
  add("POST", code, run);
  add("GET", code + "/contexts", list_contexts);
  add("POST", code + "/contexts", create_context);
  add("DELETE", one, delete_context);
  add("POST", one + "/restart", restart_context);
  add("POST", one + "/interrupt", interrupt_context);
}

}  // namespace glovebox::api::v1
