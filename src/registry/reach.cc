// SPDX-License-Identifier: Apache-2.0
#include "registry/reach.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace glovebox::registry {
namespace {

constexpr const char* kProxyVariables[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};

std::string without_brackets(const std::string& host) {
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

// 1080 is what libcurl takes when the variable names no port.
std::pair<std::string, uint16_t> proxy_of(const char* value) {
  std::string text = value;
  if (const size_t scheme = text.find("://"); scheme != text.npos) text.erase(0, scheme + 3);
  const auto url = parse_url("http://" + text);  // its own scheme (socks5h, …) says nothing about the host
  if (!url) return {};
  const bool has_port = text.find(":" + std::to_string(url->origin.port)) != text.npos;
  return {url->origin.host, has_port ? url->origin.port : uint16_t{1080}};
}

std::vector<policy::Address> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<policy::Address> out;
  if (::getaddrinfo(without_brackets(host).c_str(), nullptr, &hints, &found) != 0) return out;
  for (const addrinfo* a = found; a; a = a->ai_next) {
    if (const auto address = address_of(a->ai_addr)) out.push_back(*address);
  }
  ::freeaddrinfo(found);
  return out;
}

uint16_t port_of(const sockaddr* address) {
  return ntohs(address->sa_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(address)->sin_port
                                             : reinterpret_cast<const sockaddr_in6*>(address)->sin6_port);
}

}  // namespace

std::optional<policy::Address> address_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    return policy::address_v4(ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr));
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  if (!::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text)) return std::nullopt;
  return policy::parse_address(text);
}

Reach::Reach(const Settings& settings) : file_hosts_(settings.file_hosts.begin(), settings.file_hosts.end()) {
  for (const auto* upstream : {&settings.pypi, &settings.npm, &settings.debian, &settings.debian_security}) {
    const auto url = upstream->empty() ? Result<Url>() : parse_url(*upstream);
    if (!url || url->origin.host.empty()) continue;
    const std::string secret = url->user.empty() ? "" : url->user + ":" + url->password;
    auto& known = upstreams_[url->origin];
    if (known.empty()) known = secret;
  }
  for (const char* variable : kProxyVariables) {
    const char* value = std::getenv(variable);
    if (value && *value) proxies_.insert(proxy_of(value));
  }
}

Result<void> Reach::check(const Url& url, bool is_named_by_index) const {
  if (is_upstream(url.origin)) return {};
  const std::string where = url.origin.scheme + "://" + url.origin.host + ":" + std::to_string(url.origin.port);
  if (!is_named_by_index) return fail(Code::kForbidden, where + ": is not an upstream of this registry");
  if (url.origin.scheme != "https") return fail(Code::kForbidden, where + ": files come from an upstream or by https");
  const auto literal = policy::parse_address(without_brackets(url.origin.host));
  if (literal && !policy::special_range(*literal).empty() && !file_hosts_.contains(url.origin.host)) {
    return fail(Code::kForbidden, where + ": special address (" + std::string(policy::special_range(*literal)) + ")");
  }
  return {};
}

std::string Reach::refuse_address(const Origin& origin, const sockaddr* address) {
  if (is_upstream(origin) || file_hosts_.contains(origin.host)) return "";
  const auto known = address_of(address);
  if (!known) return "floor:unknown";
  const std::string range(policy::special_range(*known));
  if (range.empty() || operator_endpoints().contains({*known, port_of(address)})) return "";
  return range;
}

// Blocks for as long as names take to resolve; once in the life of a configuration, and only where special addresses come up at all.
const std::set<Reach::Endpoint>& Reach::operator_endpoints() {
  if (!operator_endpoints_) {
    operator_endpoints_.emplace();
    for (const auto& [origin, secret] : upstreams_) {
      for (const auto& address : resolve(origin.host)) operator_endpoints_->insert({address, origin.port});
    }
    for (const auto& [host, port] : proxies_) {
      for (const auto& address : resolve(host)) operator_endpoints_->insert({address, port});
    }
  }
  return *operator_endpoints_;
}

std::string Reach::credentials(const Origin& origin) const {
  const auto it = upstreams_.find(origin);
  return it == upstreams_.end() ? "" : it->second;
}

}  // namespace glovebox::registry
