// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "registry/settings.h"
#include "registry/url.h"

namespace glovebox::registry {

struct FetchHead {
  int status = 0;
  http::Headers headers;
  std::optional<uint64_t> length;  // of the body, when it is known and not compressed
  std::string url;                 // where it came from, after redirects
};

// Takes what a fetch gives. Called on the fetching thread, in order; on_done() once, always, last.
class Sink {
 public:
  virtual ~Sink() = default;
  // An error ends the fetch and is what on_done() gets. Redirects are not shown.
  virtual Result<void> on_head(const FetchHead& head) = 0;
  virtual Result<void> on_data(std::string_view bytes) = 0;
  virtual void on_done(Result<void> result) = 0;
};

struct Fetch {
  std::string url;
  std::vector<std::string> headers;  // "Accept: …"
  // The URL of a file that an upstream's index names: any https host with a public address will do. Otherwise, and for redirects of
  // what is not such a file, only the origins of the upstreams.
  bool is_named_by_index = false;
  bool is_compressible = false;  // ask for gzip and unpack it
};

// Fetches by libcurl, all on one thread, with connections kept. What may be reached is decided here, for each hop of each fetch:
// the origins of the operator's upstreams; and for files any other host by https, unless its address is a special one
// (policy::special_range). Such an address is let through only for hosts in Settings::file_hosts and when an upstream of the
// operator (or the proxy in this process's environment) has that same address and port.
// Errors of on_done(): kForbidden (may not be reached), kUnavailable (connection, TLS, name), kTimeout (nothing comes), what a sink said.
class Fetcher {
 public:
  static std::unique_ptr<Fetcher> start(std::string ca_bundle);
  virtual ~Fetcher() = default;  // ends the thread; fetches under way get kCancelled
  virtual void configure(const Settings& settings) = 0;
  virtual void get(Fetch fetch, std::shared_ptr<Sink> sink) = 0;
};

}  // namespace glovebox::registry
