// SPDX-License-Identifier: Apache-2.0
#include "http/router.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::http {
namespace {

using Segments = std::vector<std::string>;

struct Entry {
  std::string method;
  std::string pattern;
  std::vector<std::string> names;  // of the parameters, in order
  RouteHandler handler;
  RouteOptions options;
};

// A node of the tree of segments. The entries of one node differ in their method.
struct Node {
  std::map<std::string, std::unique_ptr<Node>, std::less<>> literals;
  std::unique_ptr<Node> parameter;
  std::vector<std::unique_ptr<Entry>> entries;       // patterns that end here
  std::vector<std::unique_ptr<Entry>> rest_entries;  // patterns that end here with {name...}
};

const Entry* entry_for(const std::vector<std::unique_ptr<Entry>>& entries,
                       std::string_view method) {
  const auto of = [&](std::string_view wanted) -> const Entry* {
    for (const auto& entry : entries) {
      if (entry->method == wanted) return entry.get();
    }
    return nullptr;
  };
  if (const Entry* exact = of(method)) return exact;
  if (const Entry* get = method == "HEAD" ? of("GET") : nullptr) return get;
  return of("*");
}

void add_methods(const std::vector<std::unique_ptr<Entry>>& entries,
                 std::vector<std::string>& out) {
  for (const auto& entry : entries) {
    out.push_back(entry->method);
    if (entry->method == "GET") out.emplace_back("HEAD");
  }
}

Segments segments_of(std::string_view path) {
  Segments out = split(path, '/');
  std::erase(out, "");  // the leading one, repeated and trailing slashes
  return out;
}

// Finds the most special entry for the method; on the way collects the methods that the path has.
struct Search {
  const Segments& segments;
  std::string_view method;
  std::vector<std::string> values;
  std::vector<std::string> methods;

  const Entry* find(const Node& node, size_t at) {
    if (at == segments.size()) {
      add_methods(node.entries, methods);
      if (const Entry* entry = entry_for(node.entries, method)) return entry;
    } else if (const Entry* entry = descend(node, at)) {
      return entry;
    }
    add_methods(node.rest_entries, methods);
    const Entry* entry = entry_for(node.rest_entries, method);
    if (entry) values.push_back(rest_from(at));
    return entry;
  }

  const Entry* descend(const Node& node, size_t at) {
    const auto literal = node.literals.find(segments[at]);
    if (literal != node.literals.end()) {
      if (const Entry* entry = find(*literal->second, at + 1)) return entry;
    }
    if (!node.parameter) return nullptr;
    values.push_back(segments[at]);
    if (const Entry* entry = find(*node.parameter, at + 1)) return entry;
    values.pop_back();
    return nullptr;
  }

  std::string rest_from(size_t at) const {
    std::string out;
    for (size_t i = at; i < segments.size(); ++i) out += (i > at ? "/" : "") + segments[i];
    return out;
  }
};

bool is_encoded(const Request& request) {
  const auto coding = request.header("Content-Encoding");
  return coding && !coding->empty() && !same_name(*coding, "identity");
}

}  // namespace

struct Router::Impl {
  Node root;
  std::vector<Route> routes;
};

Router::Router() : impl_(std::make_unique<Impl>()) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

void Router::add(std::string_view method, std::string_view pattern, RouteHandler handler,
                 RouteOptions options) {
  GB_ASSERT(pattern.starts_with('/'));
  auto entry = std::make_unique<Entry>();
  entry->method = method;
  entry->pattern = pattern;
  entry->handler = std::move(handler);
  entry->options = options;
  Node* node = &impl_->root;
  bool is_rest = false;
  for (const std::string& segment : segments_of(pattern)) {
    GB_ASSERT(!is_rest);  // {name...} is the last
    if (!segment.starts_with('{')) {
      auto& next = node->literals[segment];
      if (!next) next = std::make_unique<Node>();
      node = next.get();
      continue;
    }
    is_rest = segment.ends_with("...}");
    const size_t tail = is_rest ? 4 : 1;
    GB_ASSERT(segment.ends_with('}') && segment.size() > tail + 1);
    entry->names.push_back(segment.substr(1, segment.size() - tail - 1));
    if (is_rest) continue;
    if (!node->parameter) node->parameter = std::make_unique<Node>();
    node = node->parameter.get();
  }
  auto& entries = is_rest ? node->rest_entries : node->entries;
  const bool is_new = std::none_of(entries.begin(), entries.end(),
                                   [&](const auto& e) { return e->method == method; });
  GB_ASSERT(is_new);
  impl_->routes.push_back({entry->method, entry->pattern});
  entries.push_back(std::move(entry));
}

std::vector<Router::Route> Router::routes() const {
  return impl_->routes;
}

Result<Router::Match> Router::match(std::string_view method, std::string_view path) const {
  Segments segments = segments_of(path);
  for (std::string& segment : segments) {
    auto decoded = percent_decode(segment);
    if (!decoded)
      return fail(Code::kInvalidArgument, "the path holds a bad percent-encoding",
                  {{"segment", segment}});
    segment = *std::move(decoded);
  }
  Search search{segments, method, {}, {}};
  const Entry* entry = path.starts_with('/') ? search.find(impl_->root, 0) : nullptr;
  if (!entry && search.methods.empty())
    return fail(Code::kRouteNotFound, "no route " + std::string(path));
  if (!entry) {
    std::sort(search.methods.begin(), search.methods.end());
    search.methods.erase(std::unique(search.methods.begin(), search.methods.end()),
                         search.methods.end());
    std::string allow;
    for (const std::string& one : search.methods) allow += (allow.empty() ? "" : ", ") + one;
    return fail(Code::kMethodNotAllowed,
                std::string(method) + " is not possible here; these are: " + allow,
                {{"allow", allow}});
  }
  Match match{&entry->handler, entry->pattern, {}, entry->options};
  GB_ASSERT(entry->names.size() == search.values.size());
  for (size_t i = 0; i < entry->names.size(); ++i)
    match.params[entry->names[i]] = std::move(search.values[i]);
  return match;
}

Awaitable<void> Router::handle(Exchange& exchange) const {
  auto found = match(exchange.request.method, exchange.request.path);
  if (!found) {
    Headers headers{{"X-Request-Id", new_request_id()}};
    const auto allow = found.error().details.find("allow");
    if (allow != found.error().details.end()) headers.emplace_back("Allow", allow->second);
    co_await exchange.response.send_error(found.error(), std::move(headers));
    co_return;
  }
  if (is_encoded(exchange.request) && !found->options.any_encoding) {
    Error error{Code::kInvalidArgument,
                "send the body without Content-Encoding",
                {{"field", "Content-Encoding"}}};
    Headers headers{{"X-Request-Id", new_request_id()}, {"Accept-Encoding", "identity"}};
    co_await exchange.response.send_error(error, std::move(headers), 415);
    co_return;
  }
  co_await (*found->handler)(exchange, found->params);
}

}  // namespace glovebox::http
