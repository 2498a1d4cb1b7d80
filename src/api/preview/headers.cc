// SPDX-License-Identifier: Apache-2.0
#include "api/preview/headers.h"

#include <algorithm>

#include "api/preview/credentials.h"
#include "base/text.h"
#include "http/relay.h"

namespace glovebox::api::preview {
namespace {

using http::same_name;

// Speak of the connection or of the whole origin, which is not the app's alone.
constexpr std::string_view kNeverFromApps[] = {"Alt-Svc", "Public-Key-Pins"};
constexpr std::string_view kNotFromPaths[] = {"Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security"};
constexpr const char* kIsolation = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

template <size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::any_of(std::begin(names), std::end(names), [&](std::string_view one) { return same_name(one, name); });
}

std::string peer_address(const std::string& peer) {
  std::string address = peer.substr(0, peer.rfind(':'));
  if (address.starts_with('[')) address = address.substr(1, address.size() - 2);
  return address;
}

void set(http::Headers& headers, std::string_view name, std::string value) {
  std::erase_if(headers, [&](const auto& header) { return same_name(header.first, name); });
  headers.emplace_back(name, std::move(value));
}

// "http://host:port/path" by its authority and what follows; nothing for anything else.
bool split_absolute(const std::string& url, std::string& authority, std::string& rest) {
  const size_t scheme = url.find("://");
  const bool is_http = scheme != url.npos && (same_name(url.substr(0, scheme), "http") || same_name(url.substr(0, scheme), "https"));
  if (!is_http) return false;
  const size_t end = std::min(url.find_first_of("/?#", scheme + 3), url.size());
  authority = url.substr(scheme + 3, end - scheme - 3);
  rest = url.substr(end);
  if (!rest.starts_with('/')) rest.insert(0, "/");
  return true;
}

bool is_the_app(const std::string& authority, const Address& address, const Outside& outside) {
  const std::string port = ":" + std::to_string(address.port);
  const std::string at_80 = address.port == 80 ? "" : port;
  for (const char* name : {"localhost", "127.0.0.1", "[::1]", "0.0.0.0"}) {
    if (authority == name + port || authority == name + at_80) return true;
  }
  return authority == outside.host;
}

std::string outside_path(const Address& address, std::string path) {
  // An app that heeds X-Forwarded-Prefix has put it there itself.
  const bool has_prefix = path.starts_with(address.prefix) && (path.size() == address.prefix.size() || path[address.prefix.size()] == '/');
  if (has_prefix) return path;
  return address.prefix + path;
}

std::string outside_location(const Address& address, const Outside& outside, const std::string& location) {
  std::string authority, rest;
  if (location.starts_with('/') && !location.starts_with("//")) return outside_path(address, location);
  if (!split_absolute(location, authority, rest) || !is_the_app(authority, address, outside)) return location;
  std::string path = outside_path(address, rest);
  return path.starts_with("//") ? "/." + path : path;
}

// Domain= would hand the cookie to every other preview, Path=/ of a path URL likewise.
std::string outside_cookie(const Address& address, const std::string& cookie) {
  std::string out;
  for (const std::string& part : split(cookie, ';')) {
    const size_t begin = std::min(part.find_first_not_of(' '), part.size());
    const size_t equals = part.find('=');
    const std::string name = part.substr(begin, std::min(equals, part.size()) - begin);
    if (!out.empty() && same_name(name, "Domain")) continue;
    std::string kept = part;
    if (!out.empty() && same_name(name, "Path") && equals != part.npos && part[std::min(equals + 1, part.size() - 1)] == '/') {
      kept = " Path=" + outside_path(address, part.substr(equals + 1));
    }
    out += (out.empty() ? "" : ";") + kept;
  }
  return out;
}

bool is_our_cookie(const std::string& cookie) {
  const size_t begin = std::min(cookie.find_first_not_of(' '), cookie.size());
  const std::string_view rest = std::string_view(cookie).substr(begin);
  return rest.starts_with(kCookie) && rest.substr(kCookie.size()).find_first_not_of(' ') != rest.npos &&
         rest.substr(kCookie.size())[rest.substr(kCookie.size()).find_first_not_of(' ')] == '=';
}

}  // namespace

Outside outside_of(const http::Request& request) {
  const auto is_host = [](const std::string& host) {
    return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::string_view(".:[]-_").find(c) != std::string_view::npos;
    });
  };
  Outside out{request.is_tls ? "https" : "http", "localhost"};
  if (const auto host = request.header("Host"); host && is_host(*host)) out.host = *host;
  if (const auto scheme = request.header("X-Forwarded-Proto"); scheme == "https" || scheme == "http") out.scheme = *scheme;
  if (const auto host = request.header("X-Forwarded-Host"); host && is_host(*host)) out.host = *host;
  return out;
}

http::Headers app_headers(const http::Request& request, const Address& address) {
  const Outside outside = outside_of(request);
  const std::string own = "localhost:" + std::to_string(address.port);
  http::Headers headers = http::end_to_end(request.headers);
  strip_headers(headers);
  std::erase_if(headers, [](const auto& header) { return same_name(header.first, "Host"); });
  headers.emplace(headers.begin(), "Host", own);
  for (auto& [name, value] : headers) {
    const bool is_own = value == "http://" + outside.host || value == "https://" + outside.host;
    if (same_name(name, "Origin") && is_own) value = "http://" + own;
  }
  const auto before = request.header("X-Forwarded-For");
  set(headers, "X-Forwarded-For", (before ? *before + ", " : "") + peer_address(request.peer));
  set(headers, "X-Forwarded-Proto", outside.scheme);
  set(headers, "X-Forwarded-Host", outside.host);
  if (address.form == Address::Form::kPath) set(headers, "X-Forwarded-Prefix", address.prefix);
  return headers;
}

void edit_response(const Address& address, const Outside& outside, bool is_isolated, http::Headers& headers) {
  const bool is_path = address.form == Address::Form::kPath;
  bool streams_events = false;
  std::erase_if(headers, [&](const auto& header) {
    const auto& [name, value] = header;
    return is_one_of(kNeverFromApps, name) || (is_path && is_one_of(kNotFromPaths, name)) || (same_name(name, "Set-Cookie") && is_our_cookie(value));
  });
  for (auto& [name, value] : headers) {
    if (same_name(name, "Location")) value = outside_location(address, outside, value);
    if (same_name(name, "Set-Cookie")) value = outside_cookie(address, value);
    streams_events = streams_events || (same_name(name, "Content-Type") && value.starts_with("text/event-stream"));
  }
  // nginx holds back a response until its buffers are full, unless it is told otherwise.
  if (streams_events && !http::find_header(headers, "X-Accel-Buffering")) headers.emplace_back("X-Accel-Buffering", "no");
  if (is_isolated) headers.emplace_back("Content-Security-Policy", kIsolation);
}

}  // namespace glovebox::api::preview
