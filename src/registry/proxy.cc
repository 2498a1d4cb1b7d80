// SPDX-License-Identifier: Apache-2.0
#include "registry/proxy.h"

#include <map>
#include <utility>

#include "registry/call.h"
#include "registry/names.h"

namespace glovebox::registry {
namespace {

constexpr int kThreads = 6;
constexpr int kMaxActive = 24;  // requests of one sandbox at a time: none can take all connections
constexpr std::chrono::seconds kMaxWait{120};
constexpr std::string_view kSandboxHeader = "X-Glovebox-Sandbox";

class ProxyImpl final : public Proxy {
 public:
  explicit ProxyImpl(Core core) : core_(std::move(core)) {}

  Result<void> configure(const Settings& settings) override {
    core_.fetcher->configure(settings);
    core_.cache->set_limit(settings.cache_bytes);
    core_.settings = settings;
    core_.documents->clear_memory();
    return {};
  }
  void set_policy(const std::string& sandbox, policy::PackagePolicy policy) override {
    // A new object: requests under way go on with the policy that they began with.
    auto tenant = std::make_shared<Tenant>();
    tenant->id = sandbox;
    tenant->policy = std::move(policy);
    if (const auto it = tenants_.find(sandbox); it != tenants_.end()) tenant->used_bytes = it->second->used_bytes;
    tenants_[sandbox] = std::move(tenant);
  }
  void forget(const std::string& sandbox) override { tenants_.erase(sandbox); }
  Awaitable<void> handle(http::Exchange& exchange) override;

 private:
  Awaitable<void> route(http::Exchange& exchange, const std::shared_ptr<Tenant>& tenant);

  Core core_;
  std::map<std::string, std::shared_ptr<Tenant>> tenants_;
};

struct Active {
  explicit Active(std::shared_ptr<Tenant> t) : tenant(std::move(t)) { ++tenant->active; }
  ~Active() {
    --tenant->active;
    tenant->freed.notify();
  }
  std::shared_ptr<Tenant> tenant;
};

Awaitable<void> refuse_plainly(http::Exchange& exchange, int status, std::string text) {
  exchange.response.set_reason(text);
  const auto sent = co_await exchange.response.send(status, {{"Content-Type", "application/json"}}, "{\"error\":\"" + text + "\"}\n");
  (void)sent;
}

Awaitable<void> ProxyImpl::handle(http::Exchange& exchange) {
  const auto it = tenants_.find(exchange.request.header(kSandboxHeader).value_or(""));
  if (it == tenants_.end()) co_return co_await refuse_plainly(exchange, 403, "This sandbox has no package registries.");
  const std::string& method = exchange.request.method;
  const bool is_audit = method == "POST" && exchange.request.path.starts_with("/npm/-/");
  if (method != "GET" && method != "HEAD" && !is_audit) co_return co_await refuse_plainly(exchange, 405, "Packages can only be read here.");
  const auto tenant = it->second;
  const Deadline deadline = after(kMaxWait);
  while (tenant->active >= kMaxActive) {
    if (!co_await tenant->freed.wait_until(deadline) && Clock::now() >= deadline) {
      co_return co_await refuse_plainly(exchange, 429, "Too many package downloads at the same time.");
    }
  }
  const Active active(tenant);
  co_await route(exchange, tenant);
}

Awaitable<void> ProxyImpl::route(http::Exchange& exchange, const std::shared_ptr<Tenant>& tenant) {
  auto path = path_segments(exchange.request.path);
  if (!path || path->empty()) co_return co_await refuse_plainly(exchange, 404, "No such path.");
  const std::string root = path->front();
  path->erase(path->begin());
  Call call(core_, exchange, tenant,
            root == "pypi" ? policy::Registry::kPypi : root == "npm" ? policy::Registry::kNpm : policy::Registry::kDebian);
  if (root == "pypi") {
    co_await handle_pypi(call, *path);
  } else if (root == "npm") {
    co_await handle_npm(call, *path);
  } else if (root == "debian") {
    co_await handle_debian(call, core_.settings.debian, *path);
  } else if (root == "debian-security") {
    co_await handle_debian(call, core_.settings.debian_security, *path);
  } else {
    co_await refuse_plainly(exchange, 404, "No such registry.");
  }
}

}  // namespace

Result<std::unique_ptr<Proxy>> Proxy::create(Parts parts) {
  Core core;
  core.executor = parts.executor;
  core.on_event = std::move(parts.on_event);
  core.pool = std::make_unique<BlockingPool>(kThreads);
  GB_TRY(core.cache, Cache::open(parts.cache_dir, Settings().cache_bytes));
  core.fetcher = Fetcher::start(parts.ca_bundle);
  core.documents = std::make_unique<Documents>(parts.executor, *core.pool, *core.cache, *core.fetcher);
  core.downloads = std::make_unique<Downloads>(parts.executor, *core.pool, *core.cache, *core.fetcher);
  return std::make_unique<ProxyImpl>(std::move(core));
}

}  // namespace glovebox::registry
