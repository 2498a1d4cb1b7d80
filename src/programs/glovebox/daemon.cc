// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/daemon.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "api/e2b/e2b.h"
#include "api/lizard/lizard.h"
#include "api/mcp/mcp.h"
#include "api/preview/ports.h"
#include "api/v1/v1.h"
#include "base/log.h"
#include "base/text.h"
#include "http/router.h"
#include "programs/glovebox/assets.h"
#include "programs/glovebox/config_file.h"
#include "metrics/metrics.h"
#include "programs/glovebox/instance.h"
#include "programs/glovebox/starts.h"
#include "sandbox/manager.h"

namespace glovebox {
namespace {

constexpr std::chrono::seconds kStopTimeout{10};
constexpr std::chrono::seconds kPreviewGrace{2};  // of kStopTimeout, for previews' requests
constexpr std::chrono::seconds kLockPatience{3}, kDyingPatience{30};
constexpr std::chrono::seconds kProbeAgain{60};
constexpr int kBlockingThreads = 12;

// Whether the daemon that took the lock last is dead: then children of its have it.
bool is_left_by_a_dead_one(const UniqueFd& lock) {
  char text[24] = {};
  const bool is_told = ::pread(lock.get(), text, sizeof text - 1, 0) > 0;
  const auto pid = is_told ? parse_int(text) : std::nullopt;
  return pid && *pid > 0 && ::kill(static_cast<pid_t>(*pid), 0) != 0 && errno == ESRCH;
}

// A data directory belongs to one daemon at a time. Children of one that was killed, caught between fork and exec, hold its lock
// for the moment until they are dead, too: on a busy machine that moment can be long. One that runs is not waited for.
Result<UniqueFd> lock_data_dir(const std::string& data_dir) {
  const std::string path = data_dir + "/daemon.lock";
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return fail_errno(path);
  const Deadline end = after(kLockPatience), end_of_dying = after(kDyingPatience);
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (Clock::now() < end || (Clock::now() < end_of_dying && is_left_by_a_dead_one(lock))) continue;
    return fail(Code::kAlreadyExists, data_dir + ": another daemon uses this data directory; see its daemon.json");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), pid.data(), pid.size(), 0) < 0) return fail_errno(path);
  return lock;
}

Result<void> make_directories(const std::string& data_dir) {
  for (const char* name : {"", "/sandboxes", "/spool", "/templates"}) {
    std::error_code ec;
    std::filesystem::create_directories(data_dir + name, ec);
    if (ec) return fail(errno_code(ec.value()), data_dir + name + ": " + ec.message());
  }
  if (::chmod(data_dir.c_str(), 0711) != 0) return fail_errno(data_dir);
  for (const char* name : {"/sandboxes", "/spool"}) {
    if (::chmod((data_dir + name).c_str(), 0700) != 0) return fail_errno(data_dir + name);
  }
  return {};
}

Result<sandbox::Config> read_config(const DaemonOptions& options, const std::string& data_dir, api::preview::Settings* preview,
                                    network::Config* network, api::mcp::Settings* mcp, runtime::MicrovmConfig* microvm) {
  sandbox::Config config;
  config.data_dir = data_dir;
  // More CPUs than the host has cannot be given.
  config.max_limits.cpus = std::max(1u, std::thread::hardware_concurrency());
  config.default_limits.cpus = std::min(config.default_limits.cpus, config.max_limits.cpus);
  const std::string standard = data_dir + "/config.toml";
  const std::string path = !options.config_file.empty() ? options.config_file : std::filesystem::exists(standard) ? standard : "";
  if (!path.empty()) GB_TRYV(read_config_file(path, &config, preview, network, mcp, microvm));
  if (options.allow_emulation) microvm->allow_emulation = true;
  if (!options.default_runtime.empty() && options.default_runtime != "auto") {
    config.default_runtime = runtime::tier_from_name(options.default_runtime);
    if (!config.default_runtime) return fail(Code::kInvalidArgument, "--default-runtime: no tier is named " + options.default_runtime);
  }
  return config;
}

std::map<std::string, double> shown_limits(const sandbox::Config& c) {
  const auto mb = [](uint64_t bytes) { return static_cast<double>(bytes >> 20); };
  return {{"max_sandboxes", static_cast<double>(c.max_sandboxes)},
          {"default_cpus", c.default_limits.cpus},
          {"default_memory_mb", mb(c.default_limits.memory_bytes)},
          {"default_disk_mb", mb(c.default_limits.disk_bytes)},
          {"default_processes", static_cast<double>(c.default_limits.processes)},
          {"max_cpus", c.max_limits.cpus},
          {"max_memory_mb", mb(c.max_limits.memory_bytes)},
          {"max_disk_mb", mb(c.max_limits.disk_bytes)},
          {"max_processes", static_cast<double>(c.max_limits.processes)},
          {"default_lifetime_ms", static_cast<double>(c.default_lifetime.count())},
          {"max_lifetime_ms", static_cast<double>(c.max_lifetime.count())},
          {"retention_ms", static_cast<double>(c.retention.count())},
          {"execution_output_mb", mb(c.output_file_bytes)}};
}

// {"url": …, "pid": …}: how local programs find the daemon of a data directory.
Result<void> write_daemon_file(const std::string& data_dir, const std::string& address) {
  const std::string path = data_dir + "/daemon.json", aside = path + ".new";
  const std::string url = address.starts_with("unix:") ? address : "http://" + address;
  const std::string text = "{\"url\":\"" + url + "\",\"pid\":" + std::to_string(::getpid()) + "}\n";
  UniqueFd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file || ::write(file.get(), text.data(), text.size()) < 0 || ::rename(aside.c_str(), path.c_str()) != 0) return fail_errno(path);
  return {};
}

Result<void> count_restarts(const std::string& data_dir) {
  GB_TRY(const Restarts restarts, note_start(data_dir));
  auto& page = metrics::registry();
  const auto count = [&](const char* after, uint64_t n) {
    page.counter("glovebox_restarts_total", "Daemons that followed another one on this data directory.", {{"after", after}}).add(n);
  };
  count("stop", restarts.after_stop);
  count("death", restarts.after_death);
  return {};
}

class Daemon {
 public:
  explicit Daemon(const DaemonOptions& options) : options_(options) {}
  Result<void> start();
  Result<void> run();

 private:
  Result<void> start_store();
  Result<void> start_manager();
  Result<void> listen();
  Result<void> listen_for_previews();
  Awaitable<void> serve();
  Awaitable<void> probe_again();
  Awaitable<void> stop();

  const DaemonOptions& options_;
  sandbox::Config config_;
  api::preview::Settings preview_settings_;
  network::Config network_config_;
  api::mcp::Settings mcp_settings_;
  runtime::MicrovmConfig microvm_config_;
  UniqueFd lock_, signals_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<tenant::Keys> keys_;
  std::unique_ptr<image::Templates> templates_;
  boost::asio::io_context loop_{1};
  // Last of what coroutines use, so that its threads end before what they touch.
  runtime::HostConfig host_;
  std::unique_ptr<network::Network> network_;
  std::unique_ptr<sandbox::Manager> manager_;
  std::unique_ptr<BlockingPool> pool_;
  std::unique_ptr<code::Interpreter> code_;
  api::v1::Parts parts_;
  http::Router router_;
  std::unique_ptr<api::preview::Gateway> previews_;
  std::unique_ptr<api::e2b::Dialect> e2b_;
  std::unique_ptr<api::mcp::Server> mcp_;
  std::unique_ptr<http::Server> server_, preview_server_;
  bool stopping_ = false;
};

Result<void> Daemon::start() {
  std::error_code ec;
  const std::string data_dir = std::filesystem::absolute(options_.data_dir, ec).lexically_normal().string();
  GB_TRYV(make_directories(data_dir));
  GB_TRY(lock_, lock_data_dir(data_dir));
  GB_TRY(config_, read_config(options_, data_dir, &preview_settings_, &network_config_, &mcp_settings_, &microvm_config_));
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGTERM, SIGINT}) ::sigaddset(&wanted, signal);
  if (::pthread_sigmask(SIG_BLOCK, &wanted, nullptr) != 0) return fail_errno("block signals");
  signals_ = UniqueFd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  ::signal(SIGPIPE, SIG_IGN);
  GB_TRYV(runtime::enter_private_namespace());
  GB_TRYV(start_store());
  GB_TRYV(start_manager());
  GB_TRYV(listen());
  return count_restarts(data_dir);
}

Result<void> Daemon::start_store() {
  GB_TRY(store_, store::open_sqlite(config_.data_dir + "/glovebox.db"));
  keys_ = std::make_unique<tenant::Keys>(store_.get());
  templates_ = std::make_unique<image::Templates>(config_.data_dir);
  return keys_->load(config_.data_dir + "/admin.key");
}

Result<void> Daemon::start_manager() {
  GB_TRY(host_, prepare_host(config_.data_dir, options_.runsc, microvm_config_));
  pool_ = std::make_unique<BlockingPool>(kBlockingThreads);
  network_config_.directory = config_.data_dir + "/network";
  network_config_.program = "/proc/self/exe";
  network_ = network::Network::create(network_config_, loop_.get_executor(), pool_.get());
  sandbox::ManagerParts parts;
  parts.network = network_.get();
  parts.executor = loop_.get_executor();
  parts.pool = pool_.get();
  parts.store = store_.get();
  parts.templates = templates_.get();
  parts.runtimes = make_runtimes(host_);
  GB_TRY(parts.capabilities, probe_runtimes(host_, parts.runtimes));
  for (const auto& [tier, capability] : parts.capabilities) {
    log::info("runtime.probed", {{"runtime", runtime::tier_name(tier)}, {"usable", capability.usable}, {"engine", capability.engine},
                                 {"problem", capability.problem}});
  }
  manager_ = sandbox::Manager::create(config_, std::move(parts));
  GB_TRYV(manager_->load());
  // Versions that an import or a rebuild replaced while sandboxes still used them.
  auto removed = templates_->collect_garbage([this](const std::string& version) { return manager_->template_in_use(version); });
  if (!removed) log::warn("templates.not_collected", {{"message", removed.error().message}});
  return {};
}

Result<void> Daemon::listen() {
  parts_.service = manager_.get();
  parts_.snapshots = &manager_->snapshots();
  parts_.keys = keys_.get();
  parts_.templates = templates_.get();
  parts_.network = network_.get();
  parts_.volumes = &manager_->volumes();
  code_ = std::make_unique<code::Interpreter>(*manager_);
  manager_->set_warmer([this](sandbox::Inside& inside, const std::vector<std::string>& languages) { return code_->warm(inside, languages); });
  parts_.code = code_.get();
  parts_.pool = pool_.get();
  parts_.executor = loop_.get_executor();
  parts_.version = GLOVEBOX_VERSION;
  parts_.data_dir = config_.data_dir;
  parts_.limits = shown_limits(config_);
  parts_.openapi_json = std::string(embedded_openapi_json());
  parts_.not_ready = [this]() -> std::string { return stopping_ ? "the daemon is stopping" : ""; };
  GB_TRY(auto tokens, api::preview::Tokens::load(config_.data_dir + "/preview.key"));
  previews_ = std::make_unique<api::preview::Gateway>(*manager_, *keys_, preview_settings_, std::move(tokens));
  api::v1::add_routes(router_, parts_);
  api::preview::add_port_routes(router_, *keys_, previews_.get());
  api::lizard::add_lizard_routes(router_, *manager_, manager_->snapshots(), manager_->volumes(), *keys_, *previews_);
  GB_TRY(auto e2b_tokens, api::preview::Tokens::load(config_.data_dir + "/e2b.key"));
  e2b_ = std::make_unique<api::e2b::Dialect>(api::e2b::Parts{*manager_, manager_->snapshots(), *keys_, *previews_, *pool_, *code_, *templates_, config_.data_dir, std::move(e2b_tokens)});
  e2b_->add_control_routes(router_);
  mcp_ = std::make_unique<api::mcp::Server>(
      api::mcp::Parts{*manager_, *code_, manager_->snapshots(), *keys_, previews_.get(), loop_.get_executor(), GLOVEBOX_VERSION, mcp_settings_});
  mcp_->add_routes(router_);
  http::ServerConfig server;
  server.listen = options_.listen;
  auto handler = [this](http::Exchange& exchange) -> Awaitable<void> {
    if (e2b_->claims(exchange.request)) return e2b_->serve(exchange);
    return previews_->claims(exchange.request) ? previews_->serve(exchange) : router_.handle(exchange);
  };
  GB_TRY(server_, http::Server::listen(loop_.get_executor(), server, handler));
  GB_TRYV(listen_for_previews());
  previews_->set_ports(server_->port(), preview_server_ ? preview_server_->port() : 0);
  return {};
}

// Where the public may come in: previews only, never the API.
Result<void> Daemon::listen_for_previews() {
  if (preview_settings_.listen.empty()) return {};
  http::ServerConfig config;
  config.listen = preview_settings_.listen;
  config.tls_cert = preview_settings_.tls_cert;
  config.tls_key = preview_settings_.tls_key;
  auto handler = [this](http::Exchange& exchange) -> Awaitable<void> {
    return e2b_->claims_name(exchange.request) ? e2b_->serve(exchange) : previews_->serve(exchange, true);
  };
  GB_TRY(preview_server_, http::Server::listen(loop_.get_executor(), config, handler));
  log::info("daemon.previews", {{"listen", preview_server_->address()}, {"domain", preview_settings_.domain}, {"tls", !config.tls_cert.empty()}});
  return {};
}

Awaitable<void> Daemon::serve() {
  co_await manager_->recover();
  auto told = write_daemon_file(config_.data_dir, server_->address());
  if (!told) log::error("daemon.file_not_written", {{"message", told.error().message}});
  log::info("daemon.ready", {{"listen", server_->address()}, {"version", GLOVEBOX_VERSION}, {"data_dir", config_.data_dir}});
  if (options_.on_ready) options_.on_ready(server_->port());
  spawn(loop_.get_executor(), "daemon.probe", probe_again());
  spawn(loop_.get_executor(), "daemon.e2b", e2b_->start());
  co_await wait_readable(signals_.get());
  co_await stop();
}

// A tier that did not work may do so later: its engine was installed, or the host was too busy.
Awaitable<void> Daemon::probe_again() {
  while (true) {
    co_await sleep_for(kProbeAgain);
    const auto& known = manager_->runtimes();
    const bool all_work = std::all_of(known.begin(), known.end(), [](const auto& r) {
      return r.capability.usable || r.tier == runtime::Tier::kMicrovm;  // what it lacks is the host's processor or is built by hand
    });
    if (all_work) continue;
    auto found = co_await run_blocking(*pool_, [this] { return probe_runtimes(host_, manager_->engines()); });
    if (found) manager_->set_capabilities(std::move(*found));
  }
}

Awaitable<void> Daemon::stop() {
  stopping_ = true;
  log::info("daemon.stopping", {{"end_sandboxes", options_.end_sandboxes}});
  co_await manager_->close_pool();
  // Calls that wait on a sandbox finish sooner when it ends, so sandboxes go first when they are to go at all.
  if (options_.end_sandboxes) co_await manager_->end_all("killed");
  manager_->cut_watches();
  const Deadline deadline = after(kStopTimeout);
  // A development server's WebSocket never ends by itself.
  auto cut_previews = [](api::preview::Gateway& previews) -> Awaitable<void> {
    co_await sleep_for(kPreviewGrace);
    previews.cut_all();
  };
  spawn(loop_.get_executor(), "daemon.cut_previews", cut_previews(*previews_));
  code_->stop();
  co_await e2b_->stop();
  if (preview_server_) co_await preview_server_->stop(deadline);
  co_await server_->stop(deadline);
  co_await network_->stop();
  std::error_code ec;
  std::filesystem::remove(config_.data_dir + "/daemon.json", ec);
  loop_.stop();
}

Result<void> Daemon::run() {
  spawn(loop_.get_executor(), "daemon", serve());
  loop_.run();
  // Blocking work that is under way ends first, then what it uses.
  pool_.reset();
  store_.reset();  // its thread answers onto the loop, which goes later
  runtime::leave_host(host_);
  auto noted = note_stop(config_.data_dir);
  if (!noted) log::warn("daemon.stop_not_noted", {{"message", noted.error().message}});
  log::info("daemon.stopped");
  return {};
}

log::Level level_from(const std::string& name) {
  if (name == "debug") return log::Level::kDebug;
  if (name == "warn") return log::Level::kWarn;
  if (name == "error") return log::Level::kError;
  return log::Level::kInfo;
}

}  // namespace

int run_daemon(const DaemonOptions& options) {
  log::set_level(level_from(options.log_level));
  log::set_json(options.json_logs);
  auto daemon = std::make_unique<Daemon>(options);
  auto started = daemon->start();
  if (started) started = daemon->run();
  if (!started) {
    log::error("daemon.failed", {{"code", info(started.error().code).name}, {"message", started.error().message}});
    return 1;
  }
  // The store writes what is queued when it goes; coroutines that were still waiting go with the loop.
  return 0;
}

int print_routes() {
  store::Store* no_store = nullptr;
  tenant::Keys keys(no_store);
  api::v1::Parts parts;
  parts.keys = &keys;
  http::Router router;
  api::v1::add_routes(router, parts);
  api::preview::add_port_routes(router, keys, nullptr);
  std::string out;
  for (const auto& [method, pattern] : router.routes()) {
    out += (out.empty() ? "[" : ",\n ") + ("{\"method\": \"" + method + "\", \"pattern\": \"" + pattern + "\"}");
  }
  std::puts((out + "]").c_str());
  return 0;
}

}  // namespace glovebox
