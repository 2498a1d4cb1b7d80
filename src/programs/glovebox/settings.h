// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace glovebox::cli {

// The options that every command has.
struct GlobalOptions {
  std::optional<std::string> url, key, data_dir;
  bool json = false;
};

struct Settings {
  std::string url;       // empty: the daemon of data_dir
  std::string key;       // empty: <data_dir>/admin.key
  std::string data_dir;  // absolute
  bool json = false;
};

inline constexpr char kDefaultUrl[] = "http://127.0.0.1:7070";
inline constexpr char kDefaultDataDir[] = "/var/lib/glovebox";

// Null when the variable is not set.
using Environment = std::function<const char*(const char* name)>;

// Options before environment (GLOVEBOX_API_URL, GLOVEBOX_API_KEY, GLOVEBOX_DATA_DIR; empty counts
// as not set) before defaults.
Settings resolve_settings(const GlobalOptions& options, const Environment& environment);

struct Target {
  std::string url, key;
};

// What a daemon writes into <data_dir>/daemon.json. nullopt when there is none, or its process is
// gone.
struct DaemonState {
  std::string url;
  int pid = 0;
};
std::optional<DaemonState> running_daemon(const std::string& data_dir);

// Where the settings point. The key in data_dir is the host's master key, so it goes only to the
// daemon of that directory, or to an explicit URL on this host: whoever else happens to listen on
// the default port does not get it. kUnavailable when no daemon runs, kUnauthenticated when a key
// is missing.
Result<Target> find_target(const Settings& settings);

bool is_local_url(const std::string& url);

}  // namespace glovebox::cli
