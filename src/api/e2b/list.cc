// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/list.h"

#include <algorithm>

#include "api/e2b/control.h"
#include "api/e2b/names.h"
#include "api/e2b/views.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::SandboxInfo;
using sandbox::State;

constexpr size_t kOurPage = 1000;

tl::unexpected<Error> bad(const std::string& field, const std::string& what) {
  return fail(Code::kInvalidArgument, field + ": " + what, {{"field", field}});
}

struct Query {
  sandbox::ListFilter filter;
  std::string template_reference;
  std::optional<std::string> started_after;
  bool oldest_first = false;
  size_t limit = 100;
  std::optional<Place> after;
};

Result<void> read_states(const http::Request& request, Query& query) {
  const auto value = request.query_value("state");
  if (!value || value->empty()) {
    query.filter.states = {State::kReady, State::kPaused};
    return {};
  }
  for (const std::string& name : split(*value, ',')) {
    if (name != "running" && name != "paused") return bad("state", "must be running or paused");
    query.filter.states.push_back(name == "running" ? State::kReady : State::kPaused);
  }
  return {};
}

Result<Query> read_query(const http::Request& request) {
  Query query;
  GB_TRYV(read_states(request, query));
  if (const auto metadata = request.query_value("metadata")) {
    GB_TRY(query.filter.metadata, parse_metadata_filter(*metadata));
  }
  query.template_reference = request.query_value("template").value_or("");
  query.started_after = request.query_value("startedAfter");
  query.oldest_first = request.query_value("order") == "asc";
  GB_TRY(const auto limit, query_int(request, "limit", 1, 100, 100));
  query.limit = static_cast<size_t>(limit);
  if (const auto token = request.query_value("nextToken"); token && !token->empty()) {
    query.after = decode_place(*token);
    if (!query.after) return bad("nextToken", "is not one of ours");
  }
  return query;
}

Result<std::vector<SandboxInfo>> all_of(ControlCall& call, sandbox::ListFilter filter) {
  filter.limit = kOurPage;
  std::vector<SandboxInfo> all;
  do {
    GB_TRY(auto page, call.parts.service.list(call.caller, filter));
    std::ranges::move(page.items, std::back_inserter(all));
    filter.cursor = page.next_cursor;
  } while (!filter.cursor.empty());
  return all;
}

Place place_of(const SandboxInfo& info) { return {unix_millis(info.created_at), info.id}; }

// "2026-01-31T12:00:00.123Z" compares as text with our own form once both have the same length of seconds.
bool is_before(const SandboxInfo& info, const std::string& when) {
  return iso_time(info.created_at).compare(0, std::min<size_t>(when.size(), 19), when, 0, 19) < 0;
}

void narrow(std::vector<SandboxInfo>& all, const Query& query) {
  std::erase_if(all, [&](const SandboxInfo& info) {
    const bool other_template = !query.template_reference.empty() && info.template_name != template_name(query.template_reference);
    const bool too_old = query.started_after && is_before(info, *query.started_after);
    const bool is_passed = query.after && (query.oldest_first ? place_of(info) <= *query.after : place_of(info) >= *query.after);
    return other_template || too_old || is_passed;
  });
  std::ranges::sort(all, [&](const SandboxInfo& a, const SandboxInfo& b) {
    return query.oldest_first ? place_of(a) < place_of(b) : place_of(a) > place_of(b);
  });
}

Async<void> list(ControlCall& call) {
  GB_CO_TRY(const auto query, read_query(call.request()));
  GB_CO_TRY(auto all, all_of(call, query.filter));
  narrow(all, query);
  http::Headers headers;
  if (all.size() > query.limit) {
    all.resize(query.limit);
    headers.emplace_back("X-Next-Token", encode_place(place_of(all.back())));
  }
  bj::array items;
  for (const auto& info : all) items.push_back(listed_object(info));
  co_return co_await call.reply(std::move(items), 200, std::move(headers));
}

// The older call has no pages and shows what runs.
Async<void> list_running(ControlCall& call) {
  sandbox::ListFilter filter{.states = {State::kReady}};
  if (const auto metadata = call.request().query_value("metadata")) {
    GB_CO_TRY(filter.metadata, parse_metadata_filter(*metadata));
  }
  GB_CO_TRY(const auto all, all_of(call, std::move(filter)));
  bj::array items;
  for (const auto& info : all) items.push_back(listed_object(info));
  co_return co_await call.reply(std::move(items));
}

}  // namespace

Result<sandbox::StringMap> parse_metadata_filter(std::string_view value) {
  const auto whole = http::percent_decode(value, true);
  if (!whole) return bad("metadata", "does not decode");
  sandbox::StringMap out;
  for (const std::string& pair : split(*whole, '&')) {
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    const auto key = http::percent_decode(std::string_view(pair).substr(0, equals), true);
    const auto text = http::percent_decode(std::string_view(pair).substr(std::min(equals + 1, pair.size())), true);
    if (!key || !text) return bad("metadata", "does not decode");
    out[*key] = *text;
  }
  return out;
}

std::string encode_place(const Place& place) { return hex(std::to_string(place.created_ms) + "." + place.id); }

std::optional<Place> decode_place(std::string_view token) {
  if (token.size() % 2 != 0 || token.size() > 200) return std::nullopt;
  std::string encoded;  // as percent-encoding, which base decodes
  for (size_t i = 0; i < token.size(); i += 2) encoded += "%" + std::string(token.substr(i, 2));
  const auto text = http::percent_decode(encoded);
  const size_t dot = text ? text->find('.') : std::string::npos;
  if (dot == std::string::npos) return std::nullopt;
  const auto ms = parse_int(std::string_view(*text).substr(0, dot));
  if (!ms) return std::nullopt;
  return Place{*ms, text->substr(dot + 1)};
}

void add_list_routes(ControlRoutes& routes) {
  routes.add("GET", "/v2/sandboxes", list);
  routes.add("GET", "/sandboxes", list_running);
}

}  // namespace glovebox::api::e2b
