// SPDX-License-Identifier: Apache-2.0
#include "network/network.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "metrics/metrics.h"
#include "network/helper.h"
#include "network/host.h"
#include "network/router.h"
#include "sys/files.h"

namespace glovebox::network {
namespace {

using boost::json::object;
using Millis = std::chrono::milliseconds;

// Users that no other program has: just below the ranges of the sandboxes.
constexpr uid_t kEgressUser = 0x0FFF0001, kRegistryUser = 0x0FFF0002;
constexpr Millis kHelperStart{15'000};
constexpr Millis kLookAtHost{30'000};
constexpr Millis kLookAtFilter{10'000};
constexpr int kRouterNamespace = 4;

std::string address_text(uint32_t link) { return policy::address_v4(sandbox_address(link)).text(); }

tl::unexpected<Error> link_gone(const std::string& sandbox) {
  return fail(Code::kSandboxEnded, "sandbox " + sandbox + " gave its link back");
}

struct Member {
  std::string sandbox;
  policy::NetworkPolicy policy;
  bool has_policy = false;
  Usage usage;
  uint64_t version = 0;  // of the policy
};

class NetworkImpl : public Network {
 public:
  NetworkImpl(Config config, Executor executor, BlockingPool* pool)
      : config_(std::move(config)), executor_(std::move(executor)), pool_(pool) {
    config_.limits.own_addresses = own_addresses();
    config_.limits.forwards_datagrams = true;  // the egress proxy does
  }

  void on_event(OnEvent callback) override { on_event_ = std::move(callback); }
  Async<Link> acquire() override;
  Async<void> probe() override;
  void on_usage(OnUsage callback) override { on_usage_ = std::move(callback); }
  void adopt(uint32_t link, const std::string& sandbox, const policy::NetworkPolicy& policy, const Usage& used) override {
    members_[link] = {sandbox, policy, true, used, ++versions_};
    by_address_[address_text(link)] = link;
  }
  Async<void> set_policy(uint32_t link, const std::string& sandbox, const policy::NetworkPolicy& policy) override;
  void release(uint32_t link) override;
  Usage usage(uint32_t link) const override {
    const auto found = members_.find(link);
    return found == members_.end() ? Usage{} : found->second.usage;
  }
  const policy::Operator& limits() const override { return config_.limits; }
  Status status() const override {
    return {config_.is_enabled, is_running_, problem_, members_.size(), links_ ? links_->ready() : 0};
  }
  Awaitable<void> recover() override {
    while (is_starting_) co_await changed_.wait();  // a sandbox, or the pool, was faster: the router is in use then
    if (members_.empty() && !router_) {
      is_starting_ = true;  // a first sandbox with a network waits until this is done
      co_await run_blocking(*pool_, [directory = config_.directory] {
        end_left_routers(directory);
        return Result<void>();
      });
      is_starting_ = false;
      changed_.notify();
      co_return;
    }
    auto ready = co_await ensure();
    if (!ready) {
      log::error("network.not_recovered", {{"message", ready.error().message}, {"effect", "sandboxes stay cut off"}});
      co_return;
    }
    co_await registry_->wait_up(after(kHelperStart));
  }
  Awaitable<void> stop() override;

 private:
  Async<void> ensure();
  Async<void> start();
  Result<void> open_router();
  void start_helpers();
  Async<void> set_up_egress(Helper& helper);
  Async<void> set_up_registry(Helper& helper);
  Async<void> set_up_all(Helper& helper, std::function<object(uint32_t, const Member&)> message);
  object egress_config() const;
  object link_message(uint32_t link, const Member& member) const;
  object package_message(const Member& member) const;
  void take_egress(const object& message);
  void take_registry(const object& message);
  void take_usage(const object& links);
  void refill();
  Awaitable<void> watch_filter();
  Awaitable<void> watch_host();
  Awaitable<void> repair(std::string_view what);
  void alert(std::string_view what, const std::string& message);

  Config config_;
  Executor executor_;
  BlockingPool* pool_;
  OnEvent on_event_;
  OnUsage on_usage_;
  std::optional<Router> router_;
  std::unique_ptr<Links> links_;
  UniqueFd filter_events_;
  std::shared_ptr<Helper> egress_, registry_;
  std::map<uint32_t, Member> members_;
  uint64_t versions_ = 0;  // of policies, given out
  std::map<std::string, uint32_t> by_address_;
  bool is_running_ = false, is_starting_ = false, is_stopping_ = false, is_refilling_ = false, is_repairing_ = false;
  std::string problem_;
  Notifier changed_;
};

Async<void> NetworkImpl::ensure() {
  if (!config_.is_enabled) co_return fail(Code::kUnavailable, "networks of sandboxes are switched off here (setting network.enabled)");
  while (is_starting_) co_await changed_.wait();
  if (is_stopping_) co_return fail(Code::kUnavailable, "the daemon is stopping");
  if (is_running_) co_return Result<void>();
  is_starting_ = true;
  auto started = co_await start();
  is_starting_ = false;
  is_running_ = started.has_value();
  problem_ = started ? "" : started.error().message;
  changed_.notify();
  co_return started;
}

Async<void> NetworkImpl::start() {
  if (!router_) GB_CO_TRYV(co_await run_blocking(*pool_, [this] { return open_router(); }));
  if (!egress_) {
    start_helpers();
    spawn(executor_, "network.watch_filter", watch_filter());
    spawn(executor_, "network.watch_host", watch_host());
  }
  const bool is_up = co_await egress_->wait_up(after(kHelperStart));
  if (!is_up) co_return fail(Code::kUnavailable, "the egress proxy does not start; the daemon's log says why");
  co_return Result<void>();
}

Result<void> NetworkImpl::open_router() {
  GB_TRY(auto router, Router::open(config_.directory, config_.program));
  GB_TRY(links_, Links::open(router.netns()));
  for (const auto& [link, member] : members_) links_->adopt(link);
  GB_TRY(filter_events_, router.watch_filter());
  const std::string run = config_.directory + "/run", cache = config_.directory + "/packages";
  GB_TRYV(sys::make_directories(run, 0755));
  GB_TRYV(sys::make_directories(cache, 0700));
  if (::chown(cache.c_str(), kRegistryUser, kRegistryUser) != 0) return fail_errno(cache);
  router_ = std::move(router);
  log::info("network.router", {{"adopted", router_->was_adopted()}});
  return {};
}

void NetworkImpl::start_helpers() {
  const std::string run = config_.directory + "/run";
  Helper::Options egress;
  egress.name = "egress";
  egress.program = config_.program;
  egress.argv = {"glovebox", "internal-egress-proxy", run, std::to_string(kEgressUser)};
  egress.descriptors = {{router_->netns(), kRouterNamespace}};
  egress.set_up = [this](Helper& helper) { return set_up_egress(helper); };
  egress.on_message = [this](const object& message) { take_egress(message); };
  egress_ = Helper::start(executor_, std::move(egress));
  Helper::Options registry;
  registry.name = "registry";
  registry.program = config_.program;
  registry.argv = {"glovebox", "internal-registry-proxy", run, config_.directory + "/packages", std::to_string(kRegistryUser)};
  registry.set_up = [this](Helper& helper) { return set_up_registry(helper); };
  registry.on_message = [this](const object& message) { take_registry(message); };
  registry_ = Helper::start(executor_, std::move(registry));
}

object NetworkImpl::egress_config() const {
  boost::json::array resolvers;
  for (const auto& server : config_.resolvers.empty() ? host_resolvers() : config_.resolvers) resolvers.emplace_back(server);
  return {{"op", "config"}, {"operator", policy::to_json(config_.limits)}, {"resolvers", resolvers}, {"registry_socket", "/registry.sock"}};
}

object NetworkImpl::link_message(uint32_t link, const Member& member) const {
  // A new proxy goes on counting where the last one was.
  return {{"op", "link"}, {"address", address_text(link)}, {"sandbox", member.sandbox}, {"policy", policy::to_json(member.policy)},
          {"bytes_in", member.usage.bytes_in}, {"bytes_out", member.usage.bytes_out}};
}

object NetworkImpl::package_message(const Member& member) const {
  const policy::Evaluator evaluator(member.policy, config_.limits);
  const auto& effective = evaluator.packages();
  if (!effective) return {{"op", "forget"}, {"sandbox", member.sandbox}};
  return {{"op", "sandbox"}, {"sandbox", member.sandbox}, {"policy", policy::to_json(*effective)}};
}

// Links come, go and change meanwhile: over when every one of them was told as it is.
Async<void> NetworkImpl::set_up_all(Helper& helper, std::function<object(uint32_t, const Member&)> message) {
  std::map<uint32_t, uint64_t> told;
  const auto is_untold = [&told](const auto& entry) {
    const auto& [link, member] = entry;
    return member.has_policy && told[link] != member.version;
  };
  while (true) {
    const auto next = std::ranges::find_if(members_, is_untold);
    if (next == members_.end()) co_return Result<void>();
    told[next->first] = next->second.version;
    object text = message(next->first, next->second);
    GB_CO_TRYV(co_await helper.call(std::move(text)));
  }
}

Async<void> NetworkImpl::set_up_egress(Helper& helper) {
  helper.send(egress_config());
  std::function<object(uint32_t, const Member&)> message = [this](uint32_t link, const Member& m) { return link_message(link, m); };
  co_return co_await set_up_all(helper, std::move(message));
}

Async<void> NetworkImpl::set_up_registry(Helper& helper) {
  object upstreams;
  for (const auto& [name, url] : host_upstreams()) upstreams[name] = url;
  for (const auto& [name, url] : config_.upstreams) upstreams[name] = url;
  boost::json::array hosts;
  for (const auto& host : config_.file_hosts) hosts.emplace_back(host);
  helper.send({{"op", "config"}, {"upstreams", upstreams}, {"cache_bytes", config_.cache_bytes}, {"file_hosts", hosts}});
  std::function<object(uint32_t, const Member&)> message = [this](uint32_t, const Member& m) { return package_message(m); };
  co_return co_await set_up_all(helper, std::move(message));
}

Async<Link> NetworkImpl::acquire() {
  GB_CO_TRYV(co_await ensure());
  auto link = co_await run_blocking(*pool_, [this] { return links_->take(); });
  if (link) {
    members_[link->number] = {};
    by_address_[address_text(link->number)] = link->number;
  }
  refill();
  co_return link;
}

Async<void> NetworkImpl::probe() {
  GB_CO_TRY(const Link link, co_await acquire());
  release(link.number);
  const bool is_up = co_await registry_->wait_up(after(kHelperStart));
  if (!is_up) co_return fail(Code::kUnavailable, "the registry proxy does not start; the daemon's log says why");
  co_return Result<void>();
}

void NetworkImpl::refill() {
  if (is_refilling_ || is_stopping_) return;
  is_refilling_ = true;
  const auto work = [](NetworkImpl* self) -> Awaitable<void> {
    auto made = co_await run_blocking(*self->pool_, [self] { return self->links_->prepare(self->config_.ready_links); });
    if (!made) log::warn("network.links_not_made", {{"message", made.error().message}});
    self->is_refilling_ = false;
  };
  spawn(executor_, "network.refill", work(this));
}

Async<void> NetworkImpl::set_policy(uint32_t link, const std::string& sandbox, const policy::NetworkPolicy& policy) {
  GB_CO_TRYV(policy::check_within(policy, config_.limits));
  GB_CO_TRYV(co_await ensure());
  const auto begun = members_.find(link);
  if (begun == members_.end()) co_return link_gone(sandbox);
  const Member before = begun->second;
  const uint64_t version = ++versions_;
  begun->second = {sandbox, policy, true, before.usage, version};
  // A proxy that is down gets every policy when it is back; until then nothing passes, so the policy holds.
  if (registry_->is_up()) {
    object packages = package_message(begun->second);
    auto told = co_await registry_->call(std::move(packages));
    if (!told) log::warn("network.package_policy_late", {{"sandbox", sandbox}, {"message", told.error().message}});
  }
  // The sandbox may have ended meanwhile: a policy without a link would be the next one's who gets its number.
  const auto member = members_.find(link);
  if (member == members_.end() || member->second.sandbox != sandbox) co_return link_gone(sandbox);
  object text = link_message(link, member->second);
  auto told = co_await egress_->call(std::move(text));
  if (told || told.error().code == Code::kUnavailable) co_return Result<void>();
  const auto refused = members_.find(link);
  if (refused != members_.end() && refused->second.version == version) refused->second = before;
  co_return told;
}

void NetworkImpl::release(uint32_t link) {
  const auto found = members_.find(link);
  if (found == members_.end()) return;
  if (egress_) egress_->send({{"op", "unlink"}, {"address", address_text(link)}});
  if (registry_ && !found->second.sandbox.empty()) registry_->send({{"op", "forget"}, {"sandbox", found->second.sandbox}});
  members_.erase(found);
  by_address_.erase(address_text(link));
  if (links_) links_->release(link);
}

// Both proxies name the sandbox; the caller of the callback decides whether there is such a one.
void NetworkImpl::take_egress(const object& message) {
  const auto* op = message.if_contains("op");
  if (*op == "usage") {
    const auto* links = message.if_contains("links");
    if (links && links->is_object()) take_usage(links->get_object());
    return;
  }
  if (*op != "event") return;
  object e = message;
  e.erase("op");
  const auto* sandbox = e.if_contains("sandbox");
  const auto* verdict = e.if_contains("verdict");
  if (!sandbox || !sandbox->is_string()) return;
  if (verdict && (*verdict == "allowed" || *verdict == "denied" || *verdict == "failed")) {
    metrics::registry()
        .counter("glovebox_egress_attempts_total", "Entries of the connection logs, by verdict.", {{"verdict", std::string(verdict->get_string())}})
        .add();
  }
  if (on_event_) on_event_(std::string(sandbox->get_string()), EventKind::kConnection, std::move(e));
}

void NetworkImpl::take_registry(const object& message) {
  const auto* event = message.if_contains("event");
  if (message.at("op") != "event" || !event || !event->is_object()) return;
  const auto* sandbox = event->get_object().if_contains("sandbox");
  if (sandbox && sandbox->is_string() && on_event_) on_event_(std::string(sandbox->get_string()), EventKind::kPackage, event->get_object());
}

void NetworkImpl::take_usage(const object& links) {
  const auto number = [](const object& from, std::string_view name) -> uint64_t {
    const auto* value = from.if_contains(name);
    return value && value->is_int64() && value->get_int64() >= 0 ? static_cast<uint64_t>(value->get_int64()) : 0;
  };
  for (const auto& [address, value] : links) {
    const auto link = by_address_.find(std::string(address));
    if (link == by_address_.end() || !value.is_object()) continue;
    const object& counts = value.get_object();
    Member& member = members_[link->second];
    member.usage = {number(counts, "in"), number(counts, "out"), number(counts, "open")};
    if (on_usage_ && !member.sandbox.empty()) on_usage_(member.sandbox, member.usage);
  }
}

void NetworkImpl::alert(std::string_view what, const std::string& message) {
  metrics::registry()
      .counter("glovebox_network_alerts_total", "Times the network's guard was found changed or missing.", {{"what", std::string(what)}})
      .add();
  log::error("network.alert", {{"what", what}, {"message", message}});
}

// Somebody else changed the packet filter. Nothing passes without it (the namespace leads nowhere), so it is put back in peace.
Awaitable<void> NetworkImpl::repair(std::string_view what) {
  if (is_repairing_) co_return;
  is_repairing_ = true;
  auto intact = co_await run_blocking(*pool_, [this] { return router_->check_filter(); });
  if (!intact && !is_stopping_) {
    alert(what, intact.error().message);
    auto loaded = co_await run_blocking(*pool_, [this] { return router_->load_filter(); });
    if (!loaded) log::error("network.filter_not_loaded", {{"message", loaded.error().message}, {"effect", "nothing passes"}});
  }
  auto kept = co_await run_blocking(*pool_, [this] { return is_stopping_ ? Result<bool>(false) : router_->ensure_keeper(); });
  if (kept && *kept) alert("keeper", "the process that keeps the router namespace had ended");
  is_repairing_ = false;
}

Awaitable<void> NetworkImpl::watch_filter() {
  while (!is_stopping_) {
    const bool is_changed = co_await wait_readable(filter_events_.get(), after(kLookAtFilter));
    if (is_stopping_) co_return;
    char unused[16 << 10];
    while (is_changed && ::read(filter_events_.get(), unused, sizeof unused) > 0) {
    }
    co_await repair("packet_filter");
  }
}

// Addresses that the host gets later are as forbidden as those it had.
Awaitable<void> NetworkImpl::watch_host() {
  while (!is_stopping_) {
    co_await sleep_for(kLookAtHost);
    auto now = own_addresses();
    if (is_stopping_ || now == config_.limits.own_addresses) continue;
    config_.limits.own_addresses = std::move(now);
    if (egress_->is_up()) egress_->send(egress_config());
  }
}

Awaitable<void> NetworkImpl::stop() {
  while (is_starting_ || is_refilling_) co_await sleep_for(Millis(5));
  is_stopping_ = true;
  while (is_repairing_) co_await sleep_for(Millis(5));
  if (egress_) co_await egress_->stop();
  if (registry_) co_await registry_->stop();
  if (router_ && members_.empty()) {
    co_await run_blocking(*pool_, [this] {
      router_->leave();
      return Result<void>();
    });
  }
}

}  // namespace

object describe(const Network::Status& status, const Result<void>& probed) {
  std::string problem, remedy;
  if (!probed) {
    problem = probed.error().message;
    if (const auto found = probed.error().details.find("remedy"); found != probed.error().details.end()) remedy = found->second;
  }
  return {{"enabled", status.is_enabled}, {"works", probed.has_value()}, {"problem", problem}, {"remedy", remedy},
          {"links", status.links}, {"ready_links", status.ready_links}};
}

std::unique_ptr<Network> Network::create(Config config, Executor executor, BlockingPool* pool) {
  return std::make_unique<NetworkImpl>(std::move(config), std::move(executor), pool);
}

}  // namespace glovebox::network
