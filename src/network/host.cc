// SPDX-License-Identifier: Apache-2.0
#include "network/host.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "sys/files.h"

namespace glovebox::network {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

bool is_web_url(std::string_view text) { return text.starts_with("https://") || text.starts_with("http://"); }

std::string without_end(std::string_view url) {
  while (url.ends_with('/')) url.remove_suffix(1);
  return std::string(url);
}

// The value of "name = value" lines, the last one.
std::string setting(std::string_view text, std::string_view name) {
  std::string found;
  for (const std::string& line : split(text, '\n')) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos || trimmed(std::string_view(line).substr(0, equals)) != name) continue;
    std::string_view value = trimmed(std::string_view(line).substr(equals + 1));
    if (value.size() > 1 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front()) value = value.substr(1, value.size() - 2);
    if (is_web_url(value)) found = without_end(value);
  }
  return found;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && is_web_url(value) ? without_end(value) : "";
}

std::string first_of(std::initializer_list<std::string> candidates) {
  for (const std::string& candidate : candidates) {
    if (!candidate.empty()) return candidate;
  }
  return "";
}

std::string text_of(const std::string& path) { return sys::read_file(path).value_or(""); }

std::string home(const std::string& below) {
  const char* directory = std::getenv("HOME");
  return std::string(directory != nullptr ? directory : "/root") + below;
}

std::string apt_archive() {
  std::string all = text_of("/etc/apt/sources.list");
  for (const std::string& name : sys::list_directory("/etc/apt/sources.list.d")) all += "\n" + text_of("/etc/apt/sources.list.d/" + name);
  return parse_apt_archive(all);
}

}  // namespace

std::vector<policy::Address> own_addresses() {
  std::vector<policy::Address> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    policy::Address address;
    if (i->ifa_addr->sa_family == AF_INET) {
      std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, 4);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      address.is_v6 = true;
      std::memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr, 16);
    } else {
      continue;
    }
    found.push_back(address);
  }
  ::freeifaddrs(list);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<std::string> parse_resolvers(std::string_view resolv_conf) {
  std::vector<std::string> found;
  for (const std::string& line : split(resolv_conf, '\n')) {
    std::string_view rest = trimmed(line);
    if (!rest.starts_with("nameserver")) continue;
    rest = trimmed(rest.substr(10));
    rest = rest.substr(0, rest.find('%'));  // a zone means nothing to the proxy
    const auto address = policy::parse_address(rest);
    if (!address) continue;
    found.push_back(address->is_v6 ? "[" + address->text() + "]:53" : address->text() + ":53");
  }
  return found;
}

std::vector<std::string> host_resolvers() {
  auto found = parse_resolvers(text_of("/etc/resolv.conf"));
  if (found.empty()) found.emplace_back("127.0.0.1:53");
  return found;
}

std::string parse_pip_index(std::string_view pip_conf) { return first_of({setting(pip_conf, "index-url"), setting(pip_conf, "index_url")}); }
std::string parse_npm_registry(std::string_view npmrc) { return setting(npmrc, "registry"); }

std::string parse_apt_archive(std::string_view sources) {
  for (const std::string& line : split(sources, '\n')) {
    const std::string_view text = trimmed(line);
    if (!text.starts_with("deb ") && !text.starts_with("deb\t") && !text.starts_with("URIs:")) continue;
    for (const std::string& word : split(text, ' ')) {
      if (is_web_url(word) && word.find("security") == std::string::npos) return without_end(word);
    }
  }
  return "";
}

std::map<std::string, std::string> host_upstreams() {
  std::map<std::string, std::string> found;
  found["pypi"] = first_of({environment("PIP_INDEX_URL"), parse_pip_index(text_of(home("/.config/pip/pip.conf"))),
                            parse_pip_index(text_of(home("/.pip/pip.conf"))), parse_pip_index(text_of("/etc/pip.conf")),
                            "https://pypi.org/simple"});
  found["npm"] = first_of({environment("NPM_CONFIG_REGISTRY"), environment("npm_config_registry"), parse_npm_registry(text_of(home("/.npmrc"))),
                           parse_npm_registry(text_of("/etc/npmrc")), "https://registry.npmjs.org"});
  found["debian"] = first_of({apt_archive(), "http://deb.debian.org/debian"});
  return found;
}

}  // namespace glovebox::network
