// SPDX-License-Identifier: Apache-2.0
#include "sandbox/manager.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "base/log.h"
#include "base/random.h"
#include "metrics/metrics.h"
#include "http/json.h"
#include "policy/egress.h"
#include "sandbox/dial.h"
#include "sandbox/files.h"
#include "sandbox/gate.h"
#include "sandbox/image_files.h"
#include "sandbox/leak_check.h"
#include "sandbox/paging.h"
#include "sandbox/pool.h"
#include "sandbox/snapshots_impl.h"
#include "sandbox/volume_catalog.h"
#include "sandbox/watch.h"
#include "sys/files.h"

namespace glovebox::sandbox {
namespace {

constexpr const char* kNetworkSetting = "network";
constexpr size_t kMaxEndedKept = 2000;
constexpr size_t kHelloRest = 1024;  // of HELLO, beside the fields that come from callers
constexpr Millis kKillWait{60'000};
constexpr Millis kReapEvery{5'000};

tl::unexpected<Error> bad_field(const std::string& field, const std::string& what) {
  return fail(Code::kInvalidArgument, field + ": " + what, {{"field", field}});
}

// What a sandbox needs to be of any use: a machine of its own holds a kernel too.
uint64_t least_memory_bytes(runtime::Tier tier) { return (tier == runtime::Tier::kMicrovm ? 96ull : 16ull) << 20; }

Result<void> check_limit(const std::string& field, double value, double min, double max) {
  if (value >= min && value <= max) return {};
  const auto show = [](double v) { return v == static_cast<double>(static_cast<int64_t>(v)) ? std::to_string(static_cast<int64_t>(v)) : std::to_string(v); };
  return bad_field(field, "must be between " + show(min) + " and " + show(max) + " here");
}

constexpr Millis kLongest{365LL * 24 * 3600 * 1000};

Result<void> check_idle_timeout(Millis wanted) {
  if (wanted.count() >= 0 && wanted <= kLongest) return {};
  return bad_field("idle_timeout_ms", "must be between 0 (none) and one year");
}

Result<void> check_apart(const StringMap& env, const StringMap& secrets) {
  for (const auto& [name, value] : secrets) {
    if (env.contains(name)) return fail(Code::kInvalidArgument, "secrets: " + name + " is in env as well", {{"field", "secrets"}});
  }
  return {};
}

Result<void> check_map(const std::string& field, const StringMap& map, size_t max_count, size_t max_bytes) {
  size_t bytes = 0;
  for (const auto& [key, value] : map) {
    bytes += key.size() + value.size();
    if (key.empty() || (field != "metadata" && key.find('=') != std::string::npos)) return bad_field(field, "holds an impossible name");
    if ((key + value).find('\0') != std::string::npos) return bad_field(field, "holds a NUL byte");
  }
  if (map.size() > max_count) return bad_field(field, "has more than " + std::to_string(max_count) + " entries");
  if (bytes > max_bytes) return fail(Code::kPayloadTooLarge, field + ": is larger than " + human_bytes(max_bytes), {{"field", field}});
  return {};
}

// Of the host, without swapping.
uint64_t available_memory() {
  for (const std::string& line : split(sys::read_file("/proc/meminfo").value_or(""), '\n')) {
    constexpr std::string_view kName = "MemAvailable:";
    if (!line.starts_with(kName)) continue;
    std::string number = line.substr(kName.size());
    std::erase_if(number, [](char c) { return c < '0' || c > '9'; });
    return static_cast<uint64_t>(parse_int(number).value_or(0)) << 10;
  }
  return 0;
}

class ManagerImpl : public Manager {
 public:
  ManagerImpl(Config config, ManagerParts parts)
      : config_(std::move(config)), parts_(std::move(parts)), gate_(std::make_shared<Gate>(config_.parallel_starts)), volumes_(volume_parts()) {
    for (PoolTarget& target : config_.pool) target.network = target.network.value_or(config_.default_network != nullptr);
    pool_ = std::make_unique<Pool>(config_.pool, pool_host());
    snapshots_ = std::make_unique<SnapshotsImpl>(snapshots_host());
    set_gauges([this] { return count_sandboxes(); },
               [this] { return metrics::Registry::Samples{{{}, static_cast<double>(leaks_.leaked())}}; });
  }
  // The page's callbacks must not outlive us.
  ~ManagerImpl() override { set_gauges(nullptr, nullptr); }

  const Config& config() const override { return config_; }
  const std::vector<std::unique_ptr<runtime::Runtime>>& engines() const override { return parts_.runtimes; }
  void set_capabilities(std::vector<RuntimeInfo> capabilities) override { parts_.capabilities = std::move(capabilities); }
  const std::vector<RuntimeInfo>& runtimes() const override { return parts_.capabilities; }
  bool template_in_use(const std::string& version) const override {
    return snapshots_->uses_template(version) || std::any_of(boxes_.begin(), boxes_.end(), [&](const auto& box) {
      return box.second->is_live() && !box.second->is_pooled() && box.second->info().template_version == version;
    });
  }

  std::optional<runtime::Tier> auto_tier(const Caller& caller) const override {
    const auto runtime = choose_runtime(caller, CreateSpec());
    return runtime ? std::optional((*runtime)->tier()) : std::nullopt;
  }

  Snapshots& snapshots() override { return *snapshots_; }
  Volumes& volumes() override { return volumes_; }
  Result<void> load() override;
  void set_warmer(Warmer warmer) override { warmer_ = std::move(warmer); }
  Awaitable<void> recover() override;
  Awaitable<void> close_pool() override { return pool_->stop(); }
  std::vector<PoolState> pool() const override { return pool_->state(); }
  Awaitable<void> end_all(std::string reason) override;

  Async<Created> create(const Caller& caller, CreateSpec spec) override;
  Result<SandboxInfo> get(const Caller& caller, const std::string& id) override {
    GB_TRY(const auto box, find(caller, id));
    return box->snapshot_info();
  }
  Result<Page<SandboxInfo>> list(const Caller& caller, const ListFilter& filter) override;
  Async<SandboxInfo> update(const Caller& caller, const std::string& id, Update update) override {
    GB_CO_TRY(auto box, find(caller, id));
    if (update.lifetime) {
      GB_CO_TRY(update.lifetime, checked_lifetime(*update.lifetime));
    }
    if (update.idle_timeout) GB_CO_TRYV(check_idle_timeout(*update.idle_timeout));
    if (update.metadata) GB_CO_TRYV(check_map("metadata", *update.metadata, 64, 16 * 1024));
    GB_CO_TRYV(co_await box->update(std::move(update)));
    co_return box->snapshot_info();
  }
  Async<Killed> kill(const Caller& caller, const std::string& id) override {
    GB_CO_TRY(auto box, find(caller, id));
    const bool already = !box->is_live();
    co_await box->end("killed", "a caller killed it", after(kKillWait));
    co_return Killed{box->snapshot_info(), already};
  }
  Async<SandboxInfo> pause(const Caller& caller, const std::string& id) override {
    GB_CO_TRY(auto box, find(caller, id));
    GB_CO_TRYV(co_await box->pause("call", false));
    co_return box->snapshot_info();
  }
  Async<SandboxInfo> resume(const Caller& caller, const std::string& id) override {
    GB_CO_TRY(auto box, find(caller, id));
    GB_CO_TRYV(co_await box->resume());
    co_return box->snapshot_info();
  }
  Async<runtime::Usage> usage(const Caller& caller, const std::string& id) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await box->usage();
  }

  NetworkPolicyPtr default_network() const override { return config_.default_network; }
  NetworkPolicyPtr tenant_network(const Caller& caller) const override {
    const auto found = tenant_networks_.find(caller.tenant);
    return found == tenant_networks_.end() ? nullptr : found->second;
  }
  Async<void> set_tenant_network(const Caller& caller, NetworkPolicyPtr policy) override;
  Result<NetworkState> network(const Caller& caller, const std::string& id) override {
    GB_TRY(auto box, find(caller, id));
    return network_state(*box);
  }
  Async<NetworkState> set_network(const Caller& caller, const std::string& id, NetworkPolicyPtr policy) override {
    GB_CO_TRY(auto box, find(caller, id));
    GB_CO_TRYV(co_await box->set_network(std::move(policy)));
    co_return network_state(*box);
  }
  Async<LogPage> network_log(const Caller& caller, const std::string& id, NetworkLog log, const std::string& cursor, size_t limit) override;

  Async<ExecutionPtr> execute(const Caller& caller, const std::string& id, ExecSpec spec) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await box->execute(std::move(spec));
  }
  Async<Started> execute_once(const Caller& caller, const std::string& id, ExecSpec spec) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await box->execute_once(std::move(spec));
  }
  Async<ExecutionPtr> execution(const Caller& caller, const std::string& id, const std::string& execution) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await box->execution(execution);
  }
  Result<Page<ExecInfo>> executions(const Caller& caller, const std::string& id, std::optional<bool> running, size_t limit,
                                    const std::string& cursor) override;
  Async<std::vector<ProcessInfo>> processes(const Caller& caller, const std::string& id) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::processes(box);
  }
  Async<void> signal_process(const Caller& caller, const std::string& id, int64_t pid, int signal, bool tree) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::signal_process(box, pid, signal, tree);
  }

  Async<FileEntry> stat(const Caller& caller, const std::string& id, const std::string& user, const std::string& path,
                        bool follow) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::stat(box, user, path, follow);
  }
  Async<Page<FileEntry>> list_files(const Caller& caller, const std::string& id, const std::string& user,
                                    const std::string& path, const std::string& after_name, size_t limit) override {
    GB_CO_TRY(auto box, find(caller, id));
    GB_CO_TRY(auto listed, co_await files::list(box, user, path, after_name, limit));
    Page<FileEntry> page{std::move(listed.entries), {}};
    if (listed.more && !page.items.empty()) page.next_cursor = page.items.back().name;
    co_return page;
  }
  Async<bool> make_directory(const Caller& caller, const std::string& id, const std::string& user, const std::string& path,
                             bool parents, uint32_t mode) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::make_directory(box, user, path, parents, mode);
  }
  Async<void> remove(const Caller& caller, const std::string& id, const std::string& user, const std::string& path,
                     bool recursive) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::remove(box, user, path, recursive);
  }
  Async<void> move(const Caller& caller, const std::string& id, const std::string& user, const std::string& from,
                   const std::string& to, bool parents, bool overwrite) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::move(box, user, from, to, parents, overwrite);
  }
  Async<std::unique_ptr<ByteSource>> read_file(const Caller& caller, const std::string& id, const std::string& user,
                                               const std::string& path, uint64_t offset,
                                               std::optional<uint64_t> length) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::read(box, user, path, offset, length);
  }
  Async<std::unique_ptr<ByteSink>> write_file(const Caller& caller, const std::string& id, const std::string& user,
                                              const std::string& path, WriteOptions options) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::write(box, user, path, options);
  }
  Async<std::unique_ptr<ByteSource>> read_archive(const Caller& caller, const std::string& id, const std::string& user,
                                                  const std::string& path, bool gzip) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::read_archive(box, user, path, gzip);
  }
  Async<std::unique_ptr<ByteSink>> write_archive(const Caller& caller, const std::string& id, const std::string& user,
                                                 const std::string& path) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await files::write_archive(box, user, path);
  }

  Async<std::unique_ptr<FileWatch>> watch_files(const Caller& caller, const std::string& id, const std::string& user,
                                                const std::string& path, bool recursive) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await watch(box, user, path, recursive);
  }

  void cut_watches() override {
    const Error error{Code::kUnavailable, "the daemon is stopping", {}};
    for (const auto& [id, box] : boxes_) box->cut_watches(error);
  }

  Async<std::unique_ptr<http::Stream>> dial(const Caller& caller, const std::string& id, uint16_t port, Dialling how) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await sandbox::dial(box, port, how == Dialling::kConfirmed);
  }
  Async<std::optional<bool>> is_listening(const Caller& caller, const std::string& id, uint16_t port) override {
    GB_CO_TRY(auto box, find(caller, id));
    co_return co_await sandbox::is_listening(box, port);
  }
  Result<SandboxInfo> get_unchecked(const std::string& id) const override {
    const auto found = boxes_.find(id);
    if (found == boxes_.end() || found->second->is_pooled()) return no_sandbox(id);
    return found->second->snapshot_info();
  }

 private:
  using Box = std::shared_ptr<Sandbox>;

  static tl::unexpected<Error> no_sandbox(const std::string& id) {
    return fail(Code::kSandboxNotFound, "no sandbox '" + utf8_lossy(id.substr(0, 64)) + "'");
  }
  // Another tenant's sandbox is no different from none.
  Result<Box> find(const Caller& caller, const std::string& id) const {
    const auto found = boxes_.find(id);
    if (found == boxes_.end() || found->second->is_pooled() || found->second->info().tenant != caller.tenant) return no_sandbox(id);
    return found->second;
  }
  Result<runtime::Runtime*> choose_runtime(const Caller& caller, const CreateSpec& spec) const;
  runtime::Runtime* runtime_of(runtime::Tier tier) const;
  Result<runtime::Limits> limits_for(const CreateSpec& spec, runtime::Tier tier) const;
  Result<Millis> checked_lifetime(Millis wanted) const;
  Result<codec::SandboxDocument> plan(const Caller& caller, const CreateSpec& spec, const image::Template& tmpl,
                                      runtime::Tier tier) const;
  VolumeCatalog::Parts volume_parts();
  Pool::Host pool_host();
  SnapshotsImpl::Host snapshots_host();
  Result<codec::SandboxDocument> plan_pooled(const PoolTarget& target) const;
  Async<Box> start_pooled(codec::SandboxDocument document);
  Result<void> check_room(size_t count) const;
  Async<Box> start_for(codec::SandboxDocument document, runtime::Runtime* runtime, bool fresh, std::optional<Sandbox::Origin> origin,
                       Deadline deadline, Clock::time_point began);
  Async<void> start_cold(Box box, Deadline deadline, Clock::time_point began);
  Awaitable<void> discard(Box box);
  Box add_box(codec::SandboxDocument document, runtime::Runtime* runtime);
  Result<Box> find_earlier(const Caller& caller, const CreateSpec& spec) const;
  metrics::Registry::Samples count_sandboxes() const;
  NetworkState network_state(Sandbox& box);
  Result<void> load_settings();
  static void set_gauges(std::function<metrics::Registry::Samples()> sandboxes, std::function<metrics::Registry::Samples()> leaked) {
    auto& page = metrics::registry();
    page.gauge("glovebox_sandboxes", "Sandboxes by state and runtime, ended ones that are remembered included.", std::move(sandboxes));
    page.gauge("glovebox_leaked", "Host objects of this instance that belong to no sandbox, found by looking.", std::move(leaked));
  }
  bool is_live(const std::string& id) const {
    const auto found = boxes_.find(id);
    return found != boxes_.end() && found->second->is_live();
  }
  void remove_unknown_spools(const std::set<std::string>& recorded) const;
  void remove_unknown_images() const;
  Awaitable<void> look_for_leaks();
  Awaitable<void> reap();
  Awaitable<void> forget(Box box);

  Config config_;
  ManagerParts parts_;
  std::shared_ptr<Gate> gate_;  // of starts
  std::map<std::string, Box> boxes_;
  VolumeCatalog volumes_;
  std::map<std::string, NetworkPolicyPtr> tenant_networks_;
  std::unique_ptr<Pool> pool_;
  Warmer warmer_;
  std::unique_ptr<SnapshotsImpl> snapshots_;
  LeakCheck leaks_;
  bool is_ending_ = false;  // end_all()
  size_t live_ = 0;  // reserved from the accepted create call to the end of the clean-up
};

Result<runtime::Runtime*> ManagerImpl::choose_runtime(const Caller& caller, const CreateSpec& spec) const {
  auto wanted = spec.tier ? spec.tier : caller.default_runtime;
  if (!wanted) wanted = config_.default_runtime;
  std::string problems;
  for (const RuntimeInfo& known : parts_.capabilities) {
    if (wanted && known.tier != *wanted) continue;
    if (!wanted && known.capability.only_by_name) continue;
    if (known.capability.usable) return runtime_of(known.tier);
    problems += (problems.empty() ? "" : "; ") + std::string(tier_name(known.tier)) + ": " + known.capability.problem;
    if (!known.capability.remedy.empty()) problems += " (" + known.capability.remedy + ")";
  }
  if (wanted && problems.empty()) problems = std::string(tier_name(*wanted)) + ": this version has no engine for it";
  if (problems.empty()) problems = "no runtime is configured";
  return fail(Code::kRuntimeUnavailable, "runtime not usable on this host: " + problems,
              {{"runtime", wanted ? std::string(tier_name(*wanted)) : "auto"}});
}

runtime::Runtime* ManagerImpl::runtime_of(runtime::Tier tier) const {
  for (const auto& runtime : parts_.runtimes) {
    if (runtime->tier() == tier) return runtime.get();
  }
  return nullptr;
}

Result<runtime::Limits> ManagerImpl::limits_for(const CreateSpec& spec, runtime::Tier tier) const {
  runtime::Limits l = config_.default_limits;
  const runtime::Limits& max = config_.max_limits;
  constexpr double kMiB = 1 << 20;
  l.cpus = spec.cpus.value_or(l.cpus);
  l.memory_bytes = spec.memory_bytes.value_or(l.memory_bytes);
  l.disk_bytes = spec.disk_bytes.value_or(l.disk_bytes);
  l.processes = spec.processes.value_or(l.processes);
  l.open_files = spec.open_files.value_or(l.open_files);
  GB_TRYV(check_limit("limits.cpus", l.cpus, 0.05, max.cpus));
  GB_TRYV(check_limit("limits.memory_mb", static_cast<double>(l.memory_bytes) / kMiB, static_cast<double>(least_memory_bytes(tier)) / kMiB, static_cast<double>(max.memory_bytes) / kMiB));
  GB_TRYV(check_limit("limits.disk_mb", static_cast<double>(l.disk_bytes) / kMiB, 16, static_cast<double>(max.disk_bytes) / kMiB));
  GB_TRYV(check_limit("limits.processes", static_cast<double>(l.processes), 8, static_cast<double>(max.processes)));
  GB_TRYV(check_limit("limits.open_files", static_cast<double>(l.open_files), 64, static_cast<double>(max.open_files)));
  return l;
}

Result<Millis> ManagerImpl::checked_lifetime(Millis wanted) const {
  if (wanted.count() < 0 || wanted > kLongest) return bad_field("lifetime_ms", "must be between 0 (none) and one year");
  if (config_.max_lifetime.count() == 0) return wanted;
  if (wanted > config_.max_lifetime) {
    return bad_field("lifetime_ms", "must be at most " + std::to_string(config_.max_lifetime.count()) + " here");
  }
  return wanted.count() == 0 ? config_.max_lifetime : wanted;
}

Result<codec::SandboxDocument> ManagerImpl::plan(const Caller& caller, const CreateSpec& spec, const image::Template& tmpl,
                                                 runtime::Tier tier) const {
  codec::SandboxDocument d;
  SandboxInfo& i = d.info;
  GB_TRY(i.limits, limits_for(spec, tier));
  GB_TRYV(check_map("env", spec.env, 1000, 256 * 1024));
  GB_TRYV(check_map("secrets", spec.secrets, 1000, 256 * 1024));
  GB_TRYV(check_apart(spec.env, spec.secrets));
  GB_TRYV(check_map("metadata", spec.metadata, 64, 16 * 1024));
  GB_TRY(const Millis lifetime, checked_lifetime(spec.lifetime.value_or(config_.default_lifetime)));
  GB_TRYV(check_idle_timeout(spec.idle_timeout));
  i.id = "sb-" + random_name(12);
  i.tenant = caller.tenant;
  i.tier = tier;
  i.template_name = tmpl.name.empty() ? spec.template_name : tmpl.name;
  i.template_version = tmpl.version;
  i.created_at = std::chrono::system_clock::now();
  i.lifetime = lifetime;
  if (lifetime.count() > 0) i.expires_at = i.created_at + lifetime;
  i.idle_timeout = spec.idle_timeout;
  i.on_timeout = spec.on_timeout;
  i.env = tmpl.config.env;
  for (const auto& [key, value] : spec.env) i.env[key] = value;
  i.secrets = spec.secrets;
  i.metadata = spec.metadata;
  i.network = spec.network ? spec.network : tenant_network(caller);
  if (!i.network) i.network = config_.default_network;
  if (i.network && parts_.network) GB_TRYV(policy::check_within(*i.network, parts_.network->limits()));
  i.attributes = spec.attributes;
  i.idempotency_key = spec.idempotency_key;
  if (!spec.idempotency_key.empty()) i.request_hash = codec::request_hash(spec.request);
  i.user = !spec.user.empty() ? spec.user : tmpl.config.user.empty() ? "root" : tmpl.config.user;
  i.workdir = !spec.workdir.empty() ? spec.workdir : tmpl.config.workdir;
  if (codec::hello_fields(i, i.id, {}).size() > channel::kMaxMessageToAgent - kHelloRest) {
    return fail(Code::kPayloadTooLarge, "env: is larger than 1 MiB as JSON, with secrets", {{"field", "env"}});
  }
  d.record.id = i.id;
  d.record.tier = tier;
  d.record.directory = config_.data_dir + "/sandboxes/" + i.id;
  d.rootfs = {tmpl.image_sha256, tmpl.image_path};
  return d;
}

ManagerImpl::Box ManagerImpl::add_box(codec::SandboxDocument document, runtime::Runtime* runtime) {
  Sandbox::Context context;
  context.execution = {parts_.executor, parts_.pool, parts_.store, &config_};
  context.runtime = runtime;
  context.network = parts_.network;
  context.starts = gate_;
  context.on_ended = [this](const Sandbox& ended) {
    if (ended.is_pooled()) return;
    --live_;
    metrics::registry()
        .counter("glovebox_sandboxes_ended_total", "Sandboxes that ended, by reason.", {{"reason", ended.info().ended->reason}})
        .add();
  };
  const std::string id = document.info.id;
  auto box = std::make_shared<Sandbox>(std::move(context), std::move(document));
  if (box->is_live() && !box->is_pooled()) ++live_;
  boxes_[id] = box;
  return box;
}

metrics::Registry::Samples ManagerImpl::count_sandboxes() const {
  std::map<metrics::Labels, double> counts;
  for (const auto& [id, box] : boxes_) {
    const SandboxInfo& i = box->info();
    const bool is_pooled = box->is_pooled() && box->is_live();
    ++counts[{{"state", is_pooled ? "pooled" : i.frozen && i.state == State::kReady ? "frozen" : std::string(state_name(i.state))}, {"runtime", std::string(tier_name(i.tier))}}];
  }
  return {counts.begin(), counts.end()};
}

// The sandbox that an earlier call with this idempotency key made; null when there was none, or it could not start.
Result<ManagerImpl::Box> ManagerImpl::find_earlier(const Caller& caller, const CreateSpec& spec) const {
  if (spec.idempotency_key.empty()) return Box();
  for (const auto& [id, box] : boxes_) {
    const SandboxInfo& i = box->info();
    if (i.idempotency_key != spec.idempotency_key || i.tenant != caller.tenant) continue;
    if (i.ended && i.ended->reason == "start_failed") continue;
    if (i.request_hash == codec::request_hash(spec.request)) return box;
    return fail(Code::kConflict, "this idempotency key was used for another request", {{"sandbox", i.id}, {"state", "key_used"}});
  }
  return Box();
}

Async<SandboxService::Created> ManagerImpl::create(const Caller& caller, CreateSpec spec) {
  const auto began = Clock::now();
  const Deadline deadline = after(config_.start_timeout);
  while (true) {
    GB_CO_TRY(const Box earlier, find_earlier(caller, spec));
    if (!earlier) break;
    co_await earlier->wait_started(deadline);
    if (earlier->is_pooled()) continue;  // it was no good, and another one takes its place
    const SandboxInfo info = earlier->snapshot_info();
    if (info.ended && info.ended->reason == "start_failed") co_return fail(Code::kStartFailed, info.ended->message);
    co_return Created{info, true};
  }
  std::optional<Sandbox::Origin> origin;
  std::optional<image::Template> tmpl;
  if (!spec.snapshot.empty()) {
    GB_CO_TRY(auto base, snapshots_->base_for(caller, std::move(spec)));
    spec = std::move(base.spec);
    tmpl = std::move(base.tmpl);
    origin = std::move(base.origin);
  }
  GB_CO_TRY(auto* runtime, choose_runtime(caller, spec));
  if (!tmpl) {
    GB_CO_TRY(tmpl, parts_.templates->find(spec.template_name));
  }
  GB_CO_TRY(auto document, plan(caller, spec, *tmpl, runtime->tier()));
  if (origin) {
    document.info.started_from = "snapshot";
    document.info.snapshot_id = spec.snapshot;
  }
  GB_CO_TRY(document.info.volumes, volumes_.mounts_for(caller, spec.volumes));
  // Reserved before anything is awaited: two calls cannot both take the last place.
  GB_CO_TRYV(check_room(1));
  auto started = co_await start_for(std::move(document), runtime, spec.fresh, std::move(origin), deadline, began);
  if (!started) {
    log::warn("sandbox.start_failed", {{"request", caller.request_id}, {"message", started.error().message}});
    co_return fail(started.error());
  }
  const Box box = std::move(*started);
  const SandboxInfo info = box->snapshot_info();
  metrics::registry()
      .histogram("glovebox_create_seconds", "Create call to the agent's answer.",
                 {{"runtime", std::string(tier_name(info.tier))}, {"from", info.started_from}})
      .observe(info.ready_ms / 1000);
  log::info("sandbox.ready", {{"sandbox", info.id}, {"request", caller.request_id}, {"runtime", tier_name(info.tier)},
                              {"template", info.template_name}, {"from", info.started_from}, {"ms", info.ready_ms}});
  co_return Created{info, false};
}

Async<void> ManagerImpl::set_tenant_network(const Caller& caller, NetworkPolicyPtr policy) {
  if (caller.role != Role::kAdmin) co_return fail(Code::kForbidden, "only a key with the role admin may set the tenant's default network");
  const std::string tenant = caller.tenant;
  if (!policy) {
    GB_CO_TRYV(co_await parts_.store->delete_setting(tenant, kNetworkSetting));
    tenant_networks_.erase(tenant);
    co_return Result<void>();
  }
  if (parts_.network) GB_CO_TRYV(policy::check_within(*policy, parts_.network->limits()));
  store::SettingRow row{tenant, kNetworkSetting, json::to_text(policy::to_json(*policy))};
  GB_CO_TRYV(co_await parts_.store->put_setting(std::move(row)));
  tenant_networks_[tenant] = policy;
  co_return Result<void>();
}

Result<void> ManagerImpl::load_settings() {
  GB_TRY(const auto settings, parts_.store->load_settings());
  for (const auto& row : settings) {
    if (row.name != kNetworkSetting) continue;
    const auto value = json::parse(row.document);
    auto policy = value ? policy::parse_network_policy(*value) : Result<policy::NetworkPolicy>(fail(value.error()));
    // Unreadable, it must not become the operator's default, which may allow more.
    if (!policy) log::error("tenant.network_unreadable", {{"tenant", row.tenant}, {"message", policy.error().message}});
    tenant_networks_[row.tenant] = std::make_shared<policy::NetworkPolicy>(policy ? std::move(*policy) : policy::NetworkPolicy());
  }
  return {};
}

Result<void> ManagerImpl::check_room(size_t count) const {
  if (is_ending_) return fail(Code::kUnavailable, "the daemon is stopping");
  if (live_ + count <= config_.max_sandboxes) return {};
  return fail(Code::kCapacity, "this host runs " + std::to_string(live_) + " sandboxes, and its limit is " + std::to_string(config_.max_sandboxes),
              {{"limit", "max_sandboxes"}, {"size", std::to_string(config_.max_sandboxes)},
               {"use", std::to_string(live_)}, {"retry_after", "5"}});
}

// From the pool where that makes no difference: a volume, say, is attached before the engine starts.
Async<ManagerImpl::Box> ManagerImpl::start_for(codec::SandboxDocument document, runtime::Runtime* runtime, bool fresh,
                                               std::optional<Sandbox::Origin> origin, Deadline deadline, Clock::time_point began) {
  const SandboxInfo& wanted = document.info;
  Box pooled;
  if (!fresh && !origin && wanted.volumes.empty()) pooled = pool_->take({wanted.template_version, wanted.tier, wanted.limits, wanted.network != nullptr}, wanted.user);
  if (pooled) {
    ++live_;
    auto claimed = co_await pooled->claim(wanted, deadline, began);
    if (claimed) co_return pooled;
    if (!pooled->is_pooled()) co_return fail(claimed.error());
    --live_;
    log::warn("pool.claim_failed", {{"sandbox", pooled->info().id}, {"message", claimed.error().message}});
    spawn(parts_.executor, "pool.discard", discard(std::move(pooled)));
  }
  Box box = add_box(std::move(document), runtime);
  if (origin) box->set_origin(std::move(*origin));
  GB_CO_TRYV(co_await start_cold(box, deadline, began));
  co_return box;
}

Async<void> ManagerImpl::start_cold(Box box, Deadline deadline, Clock::time_point began) {
  if (const auto place = co_await gate_->enter(deadline)) co_return co_await box->start(deadline, began);
  const Error late{Code::kTimeout, "too many sandboxes start at once: this one's turn did not come in time", {}};
  co_await box->end("start_failed", late.message, after(kKillWait));
  co_return fail(late);
}

SnapshotsImpl::Host ManagerImpl::snapshots_host() {
  SnapshotsImpl::Host host;
  host.executor = parts_.executor;
  host.pool = parts_.pool;
  host.store = parts_.store;
  host.config = &config_;
  host.templates = parts_.templates;
  host.find = [this](const Caller& caller, const std::string& id) { return find(caller, id); };
  host.plan = [this](const Caller& caller, const CreateSpec& spec, const image::Template& tmpl, runtime::Tier tier) {
    return plan(caller, spec, tmpl, tier);
  };
  host.check_room = [this](size_t count) { return check_room(count); };
  host.add = [this](codec::SandboxDocument document, Sandbox::Origin origin) {
    auto* runtime = runtime_of(document.info.tier);
    Box box = add_box(std::move(document), runtime);
    box->set_origin(std::move(origin));
    return box;
  };
  host.start = [this](Box box, Deadline deadline, Clock::time_point began) { return start_cold(std::move(box), deadline, began); };
  host.is_image = [this](const std::string& directory) {
    return std::any_of(boxes_.begin(), boxes_.end(), [&](const auto& box) {
      return box.second->is_hibernated() && box.second->document().image->directory == directory;
    });
  };
  return host;
}

VolumeCatalog::Parts ManagerImpl::volume_parts() {
  VolumeCatalog::Parts parts{parts_.pool, parts_.store, &config_, {}};
  parts.uses = [this](const std::string& volume) {
    std::vector<VolumeCatalog::Use> uses;
    for (const auto& [id, box] : boxes_) {
      if (!box->is_live()) continue;
      for (const VolumeMount& mount : box->info().volumes) {
        if (mount.volume == volume) uses.push_back({id, mount.read_only});
      }
    }
    return uses;
  };
  return parts;
}

Pool::Host ManagerImpl::pool_host() {
  Pool::Host host;
  host.executor = parts_.executor;
  host.plan = [this](const PoolTarget& target) { return plan_pooled(target); };
  host.start = [this](codec::SandboxDocument document) { return start_pooled(std::move(document)); };
  host.warm = [this](Box box, const std::vector<std::string>& wanted) { return box->warm(warmer_, wanted); };
  host.rest = [](Box box) { return box->wait_for_owner(); };
  host.discard = [this](Box box) { return discard(std::move(box)); };
  host.has_room = [this] { return available_memory() >= config_.pool_free_memory_bytes; };
  return host;
}

Result<codec::SandboxDocument> ManagerImpl::plan_pooled(const PoolTarget& target) const {
  CreateSpec spec;
  spec.template_name = target.template_name;
  spec.tier = target.tier;
  GB_TRYV(choose_runtime(Caller(), spec));
  GB_TRY(const auto tmpl, parts_.templates->find(spec.template_name));
  spec.cpus = target.cpus;
  spec.memory_bytes = target.memory_bytes;
  spec.disk_bytes = target.disk_bytes;
  spec.processes = target.processes;
  spec.open_files = target.open_files;
  GB_TRY(auto document, plan(Caller(), spec, tmpl, target.tier));
  const bool has_link = *target.network;
  if (has_link && !(parts_.network && parts_.network->status().is_enabled)) return fail(Code::kUnavailable, "sandboxes have no network here");
  // Until it is claimed, nothing passes.
  document.info.network = has_link ? std::make_shared<policy::NetworkPolicy>() : nullptr;
  document.info.expires_at.reset();
  return document;
}

Async<ManagerImpl::Box> ManagerImpl::start_pooled(codec::SandboxDocument document) {
  const Deadline deadline = after(config_.start_timeout);
  auto* runtime = runtime_of(document.info.tier);
  const auto place = co_await gate_->enter(deadline);
  if (!place) co_return fail(Code::kTimeout, "other starts leave no room");
  Box box = add_box(std::move(document), runtime);
  auto started = co_await box->start_pooled(deadline);
  if (started) co_return box;
  co_await discard(box);
  co_return fail(started.error());
}

Awaitable<void> ManagerImpl::discard(Box box) {
  co_await box->end("killed", "the pool does not need it", Deadline::max());
  co_await forget(box);
}

SandboxService::NetworkState ManagerImpl::network_state(Sandbox& box) {
  NetworkState state;
  state.policy = box.info().network;
  state.effective = state.policy && parts_.network ? box.networking().effective(*state.policy) : R"({"egress":"none"})";
  if (box.info().link) state.address = link_address(*box.info().link);
  state.bytes_in = box.info().network_in;
  state.bytes_out = box.info().network_out;
  state.open_connections = box.networking().usage().open_connections;
  return state;
}

Async<SandboxService::LogPage> ManagerImpl::network_log(const Caller& caller, const std::string& id, NetworkLog log,
                                                        const std::string& cursor, size_t limit) {
  GB_CO_TRY(auto box, find(caller, id));
  const auto from = cursor.empty() ? std::optional<int64_t>(0) : parse_int(cursor);
  if (!from || *from < 0) co_return bad_field("cursor", "is not one of ours");
  const auto kind = log == NetworkLog::kPackages ? network::EventKind::kPackage : network::EventKind::kConnection;
  GB_CO_TRY(const auto found, co_await box->networking().log(kind).read(static_cast<uint64_t>(*from), limit));
  LogPage page;
  for (const auto& entry : found.entries) page.entries.emplace_back(entry.line, std::to_string(entry.cursor));
  page.next_cursor = std::to_string(found.next);
  page.lost = found.lost && *from > 0;
  co_return page;
}

Result<Page<SandboxInfo>> ManagerImpl::list(const Caller& caller, const ListFilter& filter) {
  std::vector<SandboxInfo> all;
  for (const auto& [id, box] : boxes_) {
    const SandboxInfo& i = box->info();
    const bool state_fits = filter.states.empty() ? i.state != State::kEnded
                                                  : std::find(filter.states.begin(), filter.states.end(), i.state) != filter.states.end();
    if (box->is_pooled() || i.tenant != caller.tenant || !state_fits) continue;
    if (!all_match(i.metadata, filter.metadata) || !all_match(i.attributes, filter.attributes)) continue;
    all.push_back(box->snapshot_info());
  }
  return newest_first(std::move(all), filter.limit, filter.cursor);
}

Result<Page<ExecInfo>> ManagerImpl::executions(const Caller& caller, const std::string& id, std::optional<bool> running,
                                               size_t limit, const std::string& cursor) {
  GB_TRY(const auto box, find(caller, id));
  auto all = box->executions();
  if (!cursor.empty()) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const ExecInfo& e) { return e.id == cursor; });
    if (at == all.end()) return bad_field("cursor", "is not one of ours, or its execution was forgotten");
    all.erase(all.begin(), at + 1);
  }
  if (running) std::erase_if(all, [&](const ExecInfo& e) { return e.outcome.has_value() == *running; });
  Page<ExecInfo> page;
  if (all.size() > limit) {
    all.resize(limit);
    page.next_cursor = all.back().id;
  }
  page.items = std::move(all);
  return page;
}

Result<void> ManagerImpl::load() {
  GB_TRYV(load_settings());
  GB_TRYV(volumes_.load());
  GB_TRY(const auto rows, parts_.store->load_sandboxes());
  std::vector<std::string> known;
  std::set<std::string> recorded;
  for (const store::SandboxRow& row : rows) {
    recorded.insert(row.id);
    auto document = codec::decode_sandbox(row.document);
    auto* runtime = document ? runtime_of(document->info.tier) : nullptr;
    if (runtime == nullptr) {
      log::error("sandbox.record_unreadable", {{"sandbox", row.id}, {"message", document ? "no such runtime" : document.error().message}});
      continue;
    }
    auto box = add_box(std::move(*document), runtime);
    GB_TRY(const auto executions, parts_.store->load_executions(row.id));
    for (const store::ExecutionRow& execution : executions) {
      auto info = codec::decode_execution(execution.document);
      if (info) box->restore_execution(std::move(*info));
    }
    if (box->is_live()) known.push_back(row.id);
  }
  for (const auto& runtime : parts_.runtimes) {
    for (const std::string& object : runtime->sweep(known)) {
      log::warn("host.swept", {{"object", object}});
      metrics::registry().counter("glovebox_swept_objects_total", "Host objects of no known sandbox, removed at start-up.").add();
    }
  }
  remove_unknown_spools(recorded);
  remove_unknown_images();
  return snapshots_->load();
}

// A daemon that died while it forgot a sandbox may have left the outputs.
void ManagerImpl::remove_unknown_spools(const std::set<std::string>& recorded) const {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(config_.data_dir + "/spool", ec)) {
    if (recorded.contains(entry.path().filename())) continue;
    std::filesystem::remove_all(entry.path(), ec);
    log::warn("spool.swept", {{"path", entry.path().string()}});
  }
}

// A daemon that died while it wrote one, or after its sandbox had gone on from it.
void ManagerImpl::remove_unknown_images() const {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(config_.data_dir + "/hibernated", ec)) {
    const auto box = boxes_.find(entry.path().filename());
    if (box != boxes_.end() && box->second->is_live() && box->second->is_hibernated()) continue;
    const auto removed = remove_image(entry.path());
    log::warn("image.swept", {{"path", entry.path().string()}, {"done", removed.has_value()}});
  }
}

// Also between restarts the host has to agree with the ledger. What does not is reported and not touched: it may be in the hands
// of somebody whom only a person can ask, and the next start removes it.
Awaitable<void> ManagerImpl::look_for_leaks() {
  while (true) {
    co_await sleep_for(config_.patience.leak_look);
    std::set<std::string> live;
    for (const auto& [id, box] : boxes_) {
      if (box->is_live()) live.insert(id);
    }
    const auto objects = co_await run_blocking(*parts_.pool, [this] {
      std::vector<runtime::HostObject> all;
      for (const auto& runtime : parts_.runtimes) std::ranges::move(runtime->host_objects(), std::back_inserter(all));
      return Result<std::vector<runtime::HostObject>>(std::move(all));
    });
    // Alive before or after: what began or ended meanwhile is no stranger.
    for (const std::string& object : leaks_.look(*objects, [&](const std::string& id) { return live.contains(id) || is_live(id); })) {
      log::error("host.leaked", {{"object", object}});
    }
  }
}

Awaitable<void> ManagerImpl::recover() {
  if (parts_.network) {
    parts_.network->on_event([this](const std::string& id, network::EventKind kind, boost::json::object event) {
      const auto box = boxes_.find(id);
      if (box != boxes_.end()) box->second->take_network_event(kind == network::EventKind::kPackage, std::move(event));
    });
    parts_.network->on_usage([this](const std::string& id, const network::Usage& usage) {
      const auto box = boxes_.find(id);
      if (box != boxes_.end()) box->second->take_network_usage(usage);
    });
  }
  for (const auto& [id, box] : std::map(boxes_)) {
    if (box->is_pooled()) {
      spawn(parts_.executor, "pool.discard", discard(box));  // of an earlier daemon
    } else if (box->is_live()) {
      spawn(parts_.executor, "sandbox.adopt", box->adopt());
    }
  }
  spawn(parts_.executor, "volumes.recover", volumes_.recover());
  spawn(parts_.executor, "snapshots.recover", snapshots_->recover());
  pool_->start();
  spawn(parts_.executor, "sandbox.reap", reap());
  spawn(parts_.executor, "sandbox.leaks", look_for_leaks());
  if (parts_.network) co_await parts_.network->recover();
  co_return;
}

Awaitable<void> ManagerImpl::end_all(std::string reason) {
  is_ending_ = true;
  const Deadline deadline = after(kKillWait);
  std::set<std::string> told;
  while (live_ > 0 && Clock::now() < deadline) {  // what a claim that fails is replaced with comes later
    for (const auto& [id, box] : boxes_) {
      if (!box->is_live() || box->is_pooled() || !told.insert(id).second) continue;
      spawn(parts_.executor, "sandbox.end", box->end(reason, "the daemon was told to end it", deadline));
    }
    co_await sleep_for(Millis(10));
  }
}

// Forgets sandboxes whose retention is over, and the oldest when too many have ended.
Awaitable<void> ManagerImpl::reap() {
  while (true) {
    co_await sleep_for(kReapEvery);
    std::vector<Box> ended;
    for (const auto& [id, box] : boxes_) {
      if (!box->is_live() && !box->is_pooled()) ended.push_back(box);
    }
    std::sort(ended.begin(), ended.end(), [](const Box& a, const Box& b) { return a->info().ended->at < b->info().ended->at; });
    const auto cutoff = std::chrono::system_clock::now() - config_.retention;
    for (size_t i = 0; i < ended.size(); ++i) {
      if (ended[i]->info().ended->at > cutoff && ended.size() - i <= kMaxEndedKept) break;
      co_await forget(ended[i]);
    }
  }
}

Awaitable<void> ManagerImpl::forget(Box box) {
  const std::string id = box->info().id;
  auto deleted = co_await parts_.store->delete_sandbox(id);
  if (!deleted) {
    log::error("sandbox.not_forgotten", {{"sandbox", id}, {"message", deleted.error().message}});
    co_return;
  }
  boxes_.erase(id);
  const std::string spool = config_.data_dir + "/spool/" + id;
  co_await run_blocking(*parts_.pool, [&] {
    std::error_code ec;
    std::filesystem::remove_all(spool, ec);
    return Result<void>();
  });
}

}  // namespace

std::unique_ptr<Manager> Manager::create(Config config, ManagerParts parts) {
  return std::make_unique<ManagerImpl>(std::move(config), std::move(parts));
}

}  // namespace glovebox::sandbox
