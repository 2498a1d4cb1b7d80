// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/http_plan.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "policy/egress.h"

namespace glovebox::egress {
namespace {

constexpr std::string_view kHttpRule = "protocol:http";

tl::unexpected<RequestRefusal> refuse(std::string reason, std::string_view rule = kHttpRule,
                                      int status = 400, std::string host = {}) {
  return tl::unexpected<RequestRefusal>(
      RequestRefusal{status, std::string(rule), std::move(reason), std::move(host)});
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// "http://host:port" of an absolute-form target, or nothing for the other forms.
std::optional<std::string_view> absolute_authority(const http::Request& request) {
  const std::string_view target = request.target;
  if (target.empty() || target[0] == '/' || target == "*") return std::nullopt;
  const size_t begin = target.find("://");
  if (begin == target.npos) return std::nullopt;
  const auto rest = target.substr(begin + 3);
  return rest.substr(0, rest.find_first_of("/?"));
}

bool is_same_place(const Authority& a, const Authority& b) {
  return a.host == b.host && a.address == b.address && a.port.value_or(80) == b.port.value_or(80);
}

// Who the request is for. The request line and the Host header must not name two different servers.
tl::expected<Authority, RequestRefusal> read_authority(const http::Request& request) {
  std::optional<Authority> named, in_line;
  if (const auto host = request.header("Host"); host && !host->empty()) {
    named = parse_authority(*host);
    if (!named)
      return refuse("the Host header is no host name or IPv4 address", kHttpRule, 400,
                    utf8_lossy(*host).substr(0, 253));
  }
  if (request.method == "CONNECT") {
    in_line = parse_authority(request.target);
    if (!in_line || !in_line->port) return refuse("the target of CONNECT is not host:port");
    // The Host of a CONNECT is often written without the port.
    if (named && !named->port) named->port = in_line->port;
  } else if (const auto text = absolute_authority(request)) {
    if (!request.target.starts_with("http://"))
      return refuse("only http:// can be asked for in a request line; use CONNECT");
    in_line = parse_authority(*text);
    if (!in_line) return refuse("the request line names no host name or IPv4 address");
  }
  if (in_line && named && !is_same_place(*in_line, *named)) {
    return refuse("the request line and the Host header name different servers", kHttpRule, 403,
                  in_line->host);
  }
  if (in_line) return *in_line;
  if (named) return *named;
  return refuse("the request names no host");
}

tl::expected<RequestKind, RequestRefusal> read_kind(const http::Request& request) {
  if (request.method == "CONNECT") {
    if (request.has_body) return refuse("CONNECT with a body");
    return RequestKind::kConnect;
  }
  const auto upgrade = request.header("Upgrade");
  if (!upgrade) return RequestKind::kPlain;
  const auto is_upgrade = [](const auto& header) {
    return http::same_name(header.first, "Upgrade");
  };
  const bool is_single =
      std::count_if(request.headers.begin(), request.headers.end(), is_upgrade) == 1;
  if (is_single && http::same_name(*upgrade, "websocket") && request.method == "GET" &&
      !request.has_body) {
    return RequestKind::kWebSocket;
  }
  const bool is_h2c = http::header_lists(request.headers, "Upgrade", "h2c");
  return refuse("the connection cannot be upgraded to anything but WebSocket",
                is_h2c ? "protocol:h2c" : "protocol:upgrade", 403);
}

bool is_hop_by_hop(std::string_view name) {
  constexpr std::array<std::string_view, 9> kNames = {
      "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization",
      "TE",         "Upgrade",    "HTTP2-Settings",   "Proxy-Authenticate",
      "Trailer"};
  return std::any_of(kNames.begin(), kNames.end(),
                     [&](std::string_view hop) { return http::same_name(hop, name); });
}

bool is_ours(std::string_view name) {
  constexpr std::string_view kPrefix = "X-Glovebox-";
  return name.size() >= kPrefix.size() && http::same_name(name.substr(0, kPrefix.size()), kPrefix);
}

}  // namespace

std::optional<Authority> parse_authority(std::string_view text) {
  Authority out;
  if (const size_t colon = text.rfind(':'); colon != text.npos) {
    const auto port = parse_int(text.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535 || text[colon + 1] == '+') return std::nullopt;
    out.port = static_cast<uint16_t>(*port);
    text = text.substr(0, colon);
  }
  out.address = policy::parse_address(text);
  if (out.address) return out.address->is_v6 ? std::nullopt : std::optional(out);
  out.host = policy::normal_host(text);
  if (out.host.empty()) return std::nullopt;
  return out;
}

tl::expected<RequestPlan, RequestRefusal> plan_request(const http::Request& request,
                                                       const Destination& destination) {
  const bool is_upper = std::none_of(request.method.begin(), request.method.end(),
                                     [](char c) { return c >= 'a' && c <= 'z'; });
  if (!is_upper)
    return refuse(
        "the method is not in upper case");  // some servers take it for the one in upper case
  if (!is_printable(request.target)) return refuse("the request target holds bytes outside ASCII");
  auto authority = read_authority(request);
  if (!authority) return tl::unexpected<RequestRefusal>(std::move(authority).error());
  auto kind = read_kind(request);
  if (!kind) {
    kind.error().host = authority->host;
    return tl::unexpected<RequestRefusal>(std::move(kind).error());
  }
  RequestPlan plan;
  plan.kind = *kind;
  plan.host = authority->host;
  plan.address = authority->address;
  plan.port = authority->port.value_or(80);
  if (plan.kind == RequestKind::kConnect) {
    plan.target = request.target;
    if (!destination.host.empty())
      return refuse("CONNECT inside CONNECT", kHttpRule, 403, plan.host);
    return plan;
  }
  // Host is usually written without the port when it is not the default one by mistake only; what
  // counts is where the connection goes.
  if (authority->port && *authority->port != destination.port) {
    return refuse("the request names another port than the connection's", kHttpRule, 403,
                  plan.host);
  }
  plan.port = destination.port;
  if (!destination.host.empty() && plan.host != destination.host) {
    return refuse("the request names another host than the CONNECT it is in", kHttpRule, 403,
                  plan.host);
  }
  if (plan.address && plan.address != destination.address) {
    return refuse("the request names another address than the connection's", kHttpRule, 403,
                  plan.address->text());
  }
  plan.target = request.method == "OPTIONS" && request.path == "*" ? "*" : request.path;
  if (request.target.find('?') != std::string::npos) plan.target += "?" + request.raw_query;
  return plan;
}

std::string forward_head(const http::Request& request, const RequestPlan& plan,
                         std::string_view extra) {
  std::string out =
      request.method + " " + plan.target + (request.is_http10 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
  out += "Host: " + (plan.address ? plan.address->text() : plan.host);
  if (plan.port != 80) out += ":" + std::to_string(plan.port);
  out += "\r\n";
  for (const auto& [name, value] : request.headers) {
    if (is_hop_by_hop(name) || is_ours(name) || http::same_name(name, "Host")) continue;
    out += name + ": " + value + "\r\n";
  }
  if (plan.kind == RequestKind::kWebSocket) {
    out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  } else if (http::header_lists(request.headers, "Connection", "close")) {
    out += "Connection: close\r\n";
  } else if (request.is_http10) {
    out += http::header_lists(request.headers, "Connection", "keep-alive")
               ? "Connection: keep-alive\r\n"
               : "";
  }
  if (http::header_lists(request.headers, "TE", "trailers") && plan.kind == RequestKind::kPlain)
    out += "TE: trailers\r\nConnection: TE\r\n";
  out += extra;
  return out + "\r\n";
}

}  // namespace glovebox::egress
