// SPDX-License-Identifier: Apache-2.0
#include "api/preview/gateway.h"

#include <algorithm>

#include "api/call.h"
#include "api/preview/credentials.h"
#include "api/preview/pages.h"
#include "base/log.h"
#include "http/relay.h"
#include "metrics/metrics.h"

namespace glovebox::api::preview {
namespace {

// Requests and open connections of one sandbox at a time. Each may hold a window of 256 KiB that its client does not take.
constexpr int kMaxUses = 256;
constexpr size_t kMaxStates = 1024;  // ports of one sandbox of which something is remembered
constexpr std::string_view kKeyPrefix = "gbx_";

metrics::Counter& requests() {
  static auto& counter = metrics::registry().counter("glovebox_preview_requests_total", "Requests passed on to ports in sandboxes.");
  return counter;
}

bool is_upgrade(const http::Request& request) { return http::header_lists(request.headers, "Connection", "upgrade"); }
bool only_reads(const http::Request& request) { return (request.method == "GET" || request.method == "HEAD") && !is_upgrade(request); }

// The target within the app, without our parameters.
std::string app_target(const http::Request& request, const Address& address) {
  const std::string query = strip_query(request.raw_query);
  const bool had_query = request.target.find('?') != std::string::npos;
  const bool keeps_mark = had_query && (!query.empty() || request.raw_query.empty());
  return address.path + (keeps_mark ? "?" + query : "");
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "[::1]" || host.starts_with("127."); }

// True when links that were good before are not any more.
bool was_closed(const PortState& before, const PortState& now) {
  return now.generation != before.generation || (now.is_revoked && !before.is_revoked) || (before.is_exposed && !now.is_exposed);
}

Error no_such_preview() { return Error{Code::kNotFound, "there is no preview at this address"}; }

// What the platform knows of a failed dial or relay that concerns the app.
Error as_preview_error(Error error, uint16_t port) {
  const std::string number = std::to_string(port);
  if (error.code == Code::kCorrupt) error.message = "what listens on port " + number + " in the sandbox does not speak HTTP/1.1: " + error.message;
  if (error.code == Code::kUnavailable || error.code == Code::kSandboxIo) error.message = "port " + number + " in the sandbox: " + error.message;
  const bool is_app = error.code == Code::kCorrupt || error.code == Code::kUnavailable || error.code == Code::kSandboxIo;
  if (!is_app) return error;
  return Error{Code::kPreviewUnreachable, std::move(error.message), {{"port", number}}};
}

}  // namespace

// One use of a sandbox's previews, as long as it lives.
struct Gateway::Use {
  Use(Gateway& g, std::string sandbox) : gateway(g), id(std::move(sandbox)) { ++gateway.uses_[id]; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if (entry) gateway.open_.erase(*entry);
    if (--gateway.uses_[id] == 0) gateway.uses_.erase(id);
  }
  void opened(uint16_t port, const std::shared_ptr<http::Stream>& stream) { entry = gateway.open_.emplace(Key(id, port), stream); }

  Gateway& gateway;
  std::string id;
  std::optional<std::multimap<Key, std::weak_ptr<http::Stream>>::iterator> entry;
};

Result<sandbox::SandboxInfo> Gateway::live_sandbox(const Address& address) const {
  if (address.port == 0) return fail(no_such_preview());
  GB_TRY(auto info, service_.get_unchecked(address.id));
  const bool has_ended = info.state == sandbox::State::kEnded || info.state == sandbox::State::kEnding;
  if (!has_ended) return info;
  const std::string reason = info.ended ? info.ended->reason : "";
  return fail(Code::kSandboxEnded, "the sandbox has ended" + (reason.empty() ? "" : " (" + reason + ")"), {{"reason", reason}});
}

// An API key opens the path form, for programs. True when it was one and is good.
Result<bool> Gateway::admits_key(const http::Request& request, const sandbox::SandboxInfo& info) const {
  const std::string key = key_of(request);
  if (key.empty()) return false;
  const auto caller = keys_.authenticate(key);
  if (!caller && key.starts_with(kKeyPrefix)) return fail(caller.error());
  if (!caller) return false;  // something of the app's
  if (caller->tenant != info.tenant) return fail(Code::kSandboxNotFound, "no sandbox '" + info.id + "'");
  return true;
}

Result<Gateway::Admission> Gateway::admit(const http::Request& request, const Address& address, const sandbox::SandboxInfo& info) const {
  const PortState state = port_state(info, address.port);
  if (state.is_revoked) return fail(Code::kNotFound, "the preview of port " + std::to_string(address.port) + " was revoked");
  const std::string own = tokens_.token(info.id, address.port, state.generation);
  const std::string shared = tokens_.token(info.id, kAllPorts, port_state(info, kAllPorts).generation);
  bool is_not_exposed = false;
  const auto find = [&](const std::vector<std::string>& shown) -> std::string {
    for (const std::string& token : shown) {
      if (Tokens::equal(token, own)) return token;
      const bool is_shared = Tokens::equal(token, shared);
      if (is_shared && state.is_exposed) return token;
      is_not_exposed |= is_shared;
    }
    return {};
  };
  const Credentials shown = credentials_of(request);
  const std::string by_query = find(shown.query);
  if (!by_query.empty()) return Admission{only_reads(request) ? Admission::Kind::kExchange : Admission::Kind::kServe, by_query};
  if (!find(shown.headers).empty()) return Admission{};
  if (is_own_doing(request) && !find(shown.cookies).empty()) return Admission{.by_cookie = true};
  if (address.form == Address::Form::kPath) {
    GB_TRY(const bool by_key, admits_key(request, info));
    if (by_key) return Admission{};
  }
  if (state.is_public) return Admission{};
  if (is_not_exposed) return fail(Code::kNotFound, "port " + std::to_string(address.port) + " is not exposed");
  return fail(Code::kUnauthenticated, "this preview is private: open the link with its token, or send the token as X-Glovebox-Preview-Token");
}

// A browser that would get the path form isolated is sent to the host form, where the app has an origin of its own. Empty: it stays.
std::string Gateway::browser_target(const http::Request& request, const Address& address, const Admission& admission) const {
  const bool navigates = request.header("Sec-Fetch-Mode") == "navigate" && only_reads(request);
  if (address.form != Address::Form::kPath || settings_.path_same_origin || !navigates || admission.by_cookie) return {};
  const std::string label = std::to_string(address.port) + "-" + address.id + ".";
  std::string out;
  if (!settings_.domain.empty()) {
    out = domain_scheme() + "://" + label + domain_authority();
  } else if (const std::string host = request.header("Host").value_or(""); listen_port_ != 0 && is_loopback(host_name(host))) {
    const size_t colon = host.rfind(':');
    const bool has_port = colon != host.npos && host.find(']', colon) == host.npos;
    out = "http://" + label + "localhost" + (has_port ? host.substr(colon) : "");
  } else {
    return {};
  }
  out += app_target(request, address);
  if (!admission.token.empty()) out += (out.find('?') == out.npos ? "?" : "&") + std::string(kTokenQuery) + "=" + admission.token;
  return out;
}

Awaitable<void> Gateway::serve(http::Exchange& exchange, bool only_names) {
  auto address = address_of(exchange.request, settings_.domain);
  if (only_names && !host_name(exchange.request.header("Host").value_or("")).ends_with("." + settings_.domain)) address.reset();
  auto done = address ? co_await answer(exchange, *address) : Result<void>(fail(no_such_preview()));
  if (done) co_return;
  if (exchange.response.head_sent()) {
    exchange.response.abort();
  } else {
    (void)co_await send_error_page(exchange, as_preview_error(done.error(), address ? address->port : 0));
  }
}

Async<void> Gateway::answer(http::Exchange& exchange, const Address& address) {
  GB_CO_TRY(const auto info, live_sandbox(address));
  GB_CO_TRY(const auto admission, admit(exchange.request, address, info));
  const std::string elsewhere = browser_target(exchange.request, address, admission);
  if (!elsewhere.empty()) co_return co_await redirect(exchange, 302, elsewhere);
  if (admission.kind == Admission::Kind::kExchange) co_return co_await exchange_token(exchange, address, admission.token);
  if (address.path.empty()) {
    const std::string query = strip_query(exchange.request.raw_query);
    co_return co_await redirect(exchange, 308, address.prefix + "/" + (query.empty() ? "" : "?" + query));
  }
  co_return co_await pass_on(exchange, address, info);
}

// The token leaves the address bar and the history at once; from now on the cookie says who it is.
Async<void> Gateway::exchange_token(http::Exchange& exchange, const Address& address, const std::string& token) const {
  const bool is_path = address.form == Address::Form::kPath;
  std::string cookie = std::string(kCookie) + "=" + token + "; Path=" + (is_path ? address.prefix : "") + "/; HttpOnly; SameSite=Lax";
  if (outside_of(exchange.request).scheme == "https") cookie += "; Secure";
  std::string target = app_target(exchange.request, address);
  if (!target.starts_with('/')) target.insert(0, "/");
  target.insert(0, address.prefix);
  if (target.starts_with("//")) target.insert(0, "/.");  // "//host/" would lead to another host
  http::Headers headers{{"Set-Cookie", std::move(cookie)}};
  co_return co_await redirect(exchange, 302, target, std::move(headers));
}

void Gateway::strip_keys(http::Headers& headers, const http::Request& request) const {
  const std::string key = key_of(request);
  if (key.empty() || (!key.starts_with(kKeyPrefix) && !keys_.authenticate(key))) return;
  std::erase_if(headers, [&](const auto& header) {
    return http::same_name(header.first, "X-API-Key") || (http::same_name(header.first, "Authorization") && header.second.ends_with(key));
  });
}

Async<void> Gateway::pass_on(http::Exchange& exchange, const Address& address, const sandbox::SandboxInfo& info) {
  const auto found = uses_.find(info.id);
  if (found != uses_.end() && found->second >= kMaxUses) {
    co_return fail(Code::kCapacity, "this sandbox has all the preview connections it may have", {{"limit", std::to_string(kMaxUses)}});
  }
  Use use(*this, info.id);
  const sandbox::Caller caller{info.tenant, "preview", sandbox::Role::kUser, {}, {}};
  // A body is not asked for before it is known that somebody takes it.
  const auto how = exchange.request.has_body ? sandbox::SandboxService::Dialling::kConfirmed : sandbox::SandboxService::Dialling::kAtOnce;
  GB_CO_TRY(std::shared_ptr<http::Stream> stream, co_await service_.dial(caller, info.id, address.port, how));
  // Waking the sandbox may have taken long, and cut() knows only what is open.
  GB_CO_TRY(const auto now, live_sandbox(address));
  if (was_closed(port_state(info, address.port), port_state(now, address.port))) {
    stream->close();
    co_return fail(Code::kNotFound, "the preview of port " + std::to_string(address.port) + " was closed meanwhile");
  }
  use.opened(address.port, stream);
  requests().add();
  http::RelayRequest request{app_target(exchange.request, address), app_headers(exchange.request, address)};
  strip_keys(request.headers, exchange.request);
  const bool is_isolated = address.form == Address::Form::kPath && !settings_.path_same_origin;
  http::RelayOptions options;
  options.edit = [&address, is_isolated, outside = outside_of(exchange.request)](int, http::Headers& headers) {
    edit_response(address, outside, is_isolated, headers);
  };
  co_return co_await http::relay(exchange, std::move(stream), std::move(request), std::move(options));
}

Async<void> Gateway::pass(http::Exchange& exchange, const std::string& id, uint16_t port) {
  Address address;
  address.id = id;
  address.port = port;
  address.path = exchange.request.path;
  GB_CO_TRY(const auto info, live_sandbox(address));
  if (port_state(info, port).is_revoked) co_return fail(Code::kNotFound, "the preview of port " + std::to_string(port) + " was revoked");
  const auto done = co_await pass_on(exchange, address, info);
  if (!done) co_return fail(as_preview_error(done.error(), port));
  co_return Result<void>();
}

void Gateway::cut(const std::string& id, uint16_t port) {
  std::vector<std::shared_ptr<http::Stream>> streams;
  const auto [begin, end] = open_.equal_range({id, port});
  for (auto it = begin; it != end; ++it) streams.push_back(it->second.lock());
  for (const auto& stream : streams) {
    if (stream) stream->close();
  }
}

void Gateway::cut_all() {
  std::vector<std::shared_ptr<http::Stream>> streams;
  for (const auto& [key, stream] : open_) streams.push_back(stream.lock());
  for (const auto& stream : streams) {
    if (stream) stream->close();
  }
}

std::string Gateway::domain_scheme() const {
  if (!settings_.scheme.empty()) return settings_.scheme;
  return settings_.listen.empty() || !settings_.tls_cert.empty() ? "https" : "http";
}

std::string Gateway::domain_authority() const {
  const uint16_t own = domain_scheme() == "https" ? 443 : 80;
  const uint16_t port = settings_.port != 0 ? settings_.port : domain_port_ != 0 ? domain_port_ : own;
  return settings_.domain + (port == own ? "" : ":" + std::to_string(port));
}

std::string Gateway::parent_domain() const {
  if (!settings_.domain.empty()) return domain_authority();
  return listen_port_ == 0 ? "" : "localhost:" + std::to_string(listen_port_);
}

Async<Gateway::View> Gateway::view(const sandbox::Caller& caller, const std::string& id, uint16_t port, const Outside& outside) {
  GB_CO_TRY(const auto listening, co_await service_.is_listening(caller, id, port));
  GB_CO_TRY(const auto info, service_.get(caller, id));
  View out{id, port, port_state(info, port), listening, {}, {}, info.expires_at};
  const std::string label = std::to_string(port) + "-" + id + ".";
  out.urls.path = outside.scheme + "://" + outside.host + "/p/" + id + "/" + std::to_string(port) + "/";
  if (listen_port_ != 0) out.urls.localhost = "http://" + label + "localhost:" + std::to_string(listen_port_) + "/";
  if (!settings_.domain.empty()) out.urls.domain = domain_scheme() + "://" + label + domain_authority() + "/";
  if (!out.state.is_revoked) out.token = tokens_.token(id, port, out.state.generation);
  co_return out;
}

// A change waits while its sandbox is being copied: another one must not be made of what was before it.
std::shared_ptr<sandbox::Gate> Gateway::turns_of(const std::string& id) {
  std::erase_if(turns_, [](const auto& entry) { return entry.second.expired(); });
  auto turns = turns_[id].lock();
  if (!turns) turns_[id] = turns = std::make_shared<sandbox::Gate>(1);
  return turns;
}

Async<void> Gateway::change(const sandbox::Caller& caller, const sandbox::SandboxInfo& info, uint16_t port, const PortState& state) {
  sandbox::Update update;
  update.attributes.insert(attribute_of(port, state));
  if (!info.attributes.contains(update.attributes.begin()->first) && count_states(info) >= kMaxStates) {
    co_return fail(Code::kCapacity, "this sandbox has settings for all the ports it may have", {{"limit", std::to_string(kMaxStates)}});
  }
  GB_CO_TRYV(co_await service_.update(caller, info.id, std::move(update)));
  co_return Result<void>();
}

Async<void> Gateway::open(const sandbox::Caller& caller, const std::string& id, uint16_t port, bool is_public) {
  const auto turns = turns_of(id);
  const auto turn = co_await turns->enter();
  GB_CO_TRY(const auto info, service_.get(caller, id));
  PortState state = port_state(info, port);
  ++state.generation;
  state.is_public = is_public;
  state.is_revoked = false;
  GB_CO_TRYV(co_await change(caller, info, port, state));
  cut(id, port);
  co_return Result<void>();
}

Async<void> Gateway::revoke(const sandbox::Caller& caller, const std::string& id, uint16_t port) {
  const auto turns = turns_of(id);
  const auto turn = co_await turns->enter();
  GB_CO_TRY(const auto info, service_.get(caller, id));
  PortState state = port_state(info, port);
  ++state.generation;
  state.is_public = state.is_exposed = false;
  state.is_revoked = true;
  GB_CO_TRYV(co_await change(caller, info, port, state));
  cut(id, port);
  co_return Result<void>();
}

Async<Gateway::Exposed> Gateway::expose(const sandbox::Caller& caller, const std::string& id, uint16_t port) {
  const auto turns = turns_of(id);
  const auto turn = co_await turns->enter();
  GB_CO_TRY(const auto info, service_.get(caller, id));
  PortState state = port_state(info, port);
  if (!state.is_exposed || state.is_revoked) {
    state.is_exposed = true;
    state.is_revoked = false;
    GB_CO_TRYV(co_await change(caller, info, port, state));
  }
  const bool has_domain = !settings_.domain.empty();
  const std::string own = parent_domain(), parent = own.empty() ? "localhost" : own;
  Exposed out;
  out.host = id + "-" + std::to_string(port) + "." + parent;
  out.token = tokens_.token(id, kAllPorts, port_state(info, kAllPorts).generation);
  out.url = (has_domain ? domain_scheme() : "http") + "://" + out.host + "/?lizard_token=" + out.token;
  co_return out;
}

Async<void> Gateway::unexpose(const sandbox::Caller& caller, const std::string& id, uint16_t port) {
  const auto turns = turns_of(id);
  const auto turn = co_await turns->enter();
  GB_CO_TRY(const auto info, service_.get(caller, id));
  PortState state = port_state(info, port);
  if (state.is_exposed) {
    state.is_exposed = false;
    GB_CO_TRYV(co_await change(caller, info, port, state));
    cut(id, port);
  }
  co_return Result<void>();
}

}  // namespace glovebox::api::preview
