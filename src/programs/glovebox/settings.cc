// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/settings.h"

#include <arpa/inet.h>
#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "http/client.h"
#include "http/json.h"
#include "programs/glovebox/fields.h"

namespace glovebox::cli {
namespace {

std::string choose(const std::optional<std::string>& option, const Environment& environment,
                   const char* name) {
  if (option) return *option;
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

// nullopt when it cannot be read.
std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  return text;
}

Result<std::string> admin_key(const std::string& data_dir) {
  const std::string path = data_dir + "/admin.key";
  auto key = read_text(path);
  if (key && !key->empty()) return *key;
  return fail(Code::kUnauthenticated,
              "no key: give --key, set GLOVEBOX_API_KEY, or let this user read " + path);
}

// A dotted address, not a name that begins like one.
bool is_loopback_v4(const std::string& host) {
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

}  // namespace

Settings resolve_settings(const GlobalOptions& options, const Environment& environment) {
  Settings out;
  out.url = choose(options.url, environment, "GLOVEBOX_API_URL");
  out.key = choose(options.key, environment, "GLOVEBOX_API_KEY");
  out.data_dir = choose(options.data_dir, environment, "GLOVEBOX_DATA_DIR");
  if (out.data_dir.empty()) out.data_dir = kDefaultDataDir;
  out.data_dir = std::filesystem::absolute(out.data_dir).lexically_normal().string();
  if (out.data_dir.size() > 1 && out.data_dir.back() == '/') out.data_dir.pop_back();
  out.json = options.json;
  return out;
}

std::optional<DaemonState> running_daemon(const std::string& data_dir) {
  const auto content = read_text(data_dir + "/daemon.json");
  if (!content) return std::nullopt;
  const auto parsed = json::parse(*content);
  if (!parsed) return std::nullopt;
  DaemonState state{text(*parsed, "url"), static_cast<int>(number(*parsed, "pid"))};
  if (state.url.empty() || state.pid <= 0) return std::nullopt;
  if (::kill(state.pid, 0) != 0 && errno == ESRCH) return std::nullopt;
  return state;
}

bool is_local_url(const std::string& url) {
  const auto parsed = http::parse_url(url);
  if (!parsed) return false;
  return !parsed->unix_path.empty() || parsed->host == "localhost" || parsed->host == "::1" ||
         is_loopback_v4(parsed->host);
}

Result<Target> find_target(const Settings& settings) {
  if (!settings.url.empty()) {
    if (!settings.key.empty()) return Target{settings.url, settings.key};
    if (!is_local_url(settings.url)) {
      return fail(Code::kUnauthenticated,
                  "no key for " + settings.url + ": give --key or set GLOVEBOX_API_KEY");
    }
    GB_TRY(auto key, admin_key(settings.data_dir));
    return Target{settings.url, std::move(key)};
  }
  if (const auto daemon = running_daemon(settings.data_dir)) {
    if (!settings.key.empty()) return Target{daemon->url, settings.key};
    GB_TRY(auto key, admin_key(settings.data_dir));
    return Target{daemon->url, std::move(key)};
  }
  if (!settings.key.empty()) return Target{kDefaultUrl, settings.key};
  return fail(Code::kUnavailable, "no daemon runs on " + settings.data_dir);
}

}  // namespace glovebox::cli
