// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "http/server.h"
#include "policy/packages.h"
#include "registry/documents.h"
#include "registry/downloads.h"
#include "registry/settings.h"

namespace glovebox::registry {

// A sandbox that may ask.
struct Tenant {
  std::string id;
  policy::PackagePolicy policy;
  std::shared_ptr<uint64_t> used_bytes = std::make_shared<uint64_t>(0);  // of files, for policy.max_bytes; outlives changes of the policy
  int active = 0;           // requests under way
  Notifier freed;
};

// An entry of the package log.
struct Event {
  std::string package, requested, version, file, sha256, source, outcome, rule, reason;
  uint64_t bytes = 0;
};

struct Core {
  Executor executor;
  std::function<void(boost::json::object)> on_event;
  Settings settings;
  std::unique_ptr<BlockingPool> pool;
  std::unique_ptr<Cache> cache;
  std::unique_ptr<Fetcher> fetcher;
  std::unique_ptr<Documents> documents;
  std::unique_ptr<Downloads> downloads;
};

// One request of one sandbox. Every way to answer it that concerns a package leaves an entry in the log.
class Call {
 public:
  Call(Core& core, http::Exchange& exchange, std::shared_ptr<Tenant> tenant, policy::Registry registry)
      : core(core), exchange(exchange), tenant(std::move(tenant)), registry(registry) {}

  Core& core;
  http::Exchange& exchange;
  std::shared_ptr<Tenant> tenant;
  const policy::Registry registry;
  Event event;

  const policy::PackagePolicy& policy() const { return tenant->policy; }
  policy::PackageVerdict decide(const std::string& version = "", std::optional<int64_t> uploaded_at_ms = {}, bool is_source = false) const;

  // 403 that names the rule in the reason phrase (all that pip and pnpm show) and in a JSON body (npm shows its "error").
  Awaitable<void> refuse(policy::PackageVerdict verdict);
  // What could not be had, and why. A file that does not match its hash is refused by the rule "integrity".
  Awaitable<void> fail_with(Error error);
  Awaitable<void> send_document(int status, http::Headers headers, std::string body);
  // A small answer that is no package matter: not logged.
  Awaitable<void> send_plain(int status, std::string json);

  // Whether the file may still be downloaded; counts it. A file of unknown length is counted while it is sent.
  policy::PackageVerdict charge(uint64_t bytes);
  // Fetches and sends a file, whole and verified or visibly broken. `log_it` is false for what belongs to a file (its metadata).
  Awaitable<void> send_file(FileSpec spec, bool log_it = true);
  Awaitable<void> send_cached(Cache::File file, const char* source, bool log_it = true);

  void log(std::string_view outcome);
  // An index was served, and `hidden` of the `count` things in it were marked or left out, one of them because of `example`.
  void log_hidden(size_t hidden, size_t count, const policy::PackageVerdict& example);

 private:
  Awaitable<void> send_head(std::optional<uint64_t> size, bool has_ranges);
  Awaitable<void> send_running(std::shared_ptr<Download> download, bool log_it);
};

policy::PackageVerdict offline_verdict(std::string_view what);

Awaitable<void> handle_pypi(Call& call, const std::vector<std::string>& path);
Awaitable<void> handle_npm(Call& call, const std::vector<std::string>& path);
// `upstream`: of the archive that the path is below.
Awaitable<void> handle_debian(Call& call, const std::string& upstream, const std::vector<std::string>& path);

}  // namespace glovebox::registry
