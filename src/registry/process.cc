// SPDX-License-Identifier: Apache-2.0
#include <curl/curl.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <csignal>

#include "base/log.h"
#include "base/sanitizers.h"
#include "http/json.h"
#include "http/server.h"
#include "registry/control.h"
#include "registry/proxy.h"
#include "registry/registry.h"
#include "sys/files.h"

namespace glovebox::registry {
namespace {

constexpr rlim_t kMaxFiles = 8192;
constexpr rlim_t kMaxDataBytes = rlim_t{3} << 30;
constexpr size_t kMaxConnections = 1024;

Result<void> limit(int resource, rlim_t value) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return fail_errno("getrlimit");
  const rlim_t allowed = std::min(value, now.rlim_max);
  const rlimit wanted{allowed, allowed};
  if (::setrlimit(static_cast<__rlimit_resource_t>(resource), &wanted) != 0) return fail_errno("setrlimit");
  return {};
}

// The cache belongs to the user that the proxy runs as. What another user left there is of no use to it, and goes.
Result<void> own_cache(const RegistryOptions& options) {
  GB_TRYV(sys::make_directories(options.cache_dir, 0700));
  struct stat info {};
  if (::stat(options.cache_dir.c_str(), &info) != 0) return fail_errno(options.cache_dir);
  if (::geteuid() != 0 || info.st_uid == options.uid) return {};
  GB_TRYV(sys::remove_tree(options.cache_dir, true));
  if (::chown(options.cache_dir.c_str(), options.uid, options.gid) != 0) return fail_errno(options.cache_dir);
  return {};
}

Result<void> drop_privileges(const RegistryOptions& options) {
  GB_TRYV(limit(RLIMIT_CORE, 0));
  GB_TRYV(limit(RLIMIT_NOFILE, kMaxFiles));
  if (!kIsSanitized) GB_TRYV(limit(RLIMIT_DATA, kMaxDataBytes));
  if (::geteuid() == 0) {
    if (options.uid == 0 || options.gid == 0) return fail(Code::kInvalidArgument, "the registry proxy needs a user other than root to run as");
    if (::setgroups(0, nullptr) != 0) return fail_errno("setgroups");
    if (::setresgid(options.gid, options.gid, options.gid) != 0) return fail_errno("setresgid");
    if (::setresuid(options.uid, options.uid, options.uid) != 0) return fail_errno("setresuid");
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("no_new_privs");
  return {};
}

// Set after the change of user, which clears it.
Result<void> die_with_parent(pid_t parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_errno("PR_SET_PDEATHSIG");
  if (::getppid() != parent) return fail(Code::kUnavailable, "the daemon has ended");
  return {};
}

class Process {
 public:
  explicit Process(const RegistryOptions& options) : options_(options) {}
  Result<void> run();

 private:
  Result<void> apply(const boost::json::object& operation);
  Awaitable<void> serve(Control& control);

  const RegistryOptions& options_;
  boost::asio::io_context loop_{1};
  std::unique_ptr<Proxy> proxy_;
};

Result<void> Process::run() {
  const pid_t parent = ::getppid();
  ::signal(SIGPIPE, SIG_IGN);
  GB_TRYV(own_cache(options_));
  GB_TRY(const UniqueFd run_dir, sys::open_fd(options_.run_dir, O_PATH | O_DIRECTORY));
  http::ServerConfig server;
  // By way of the descriptor: a data directory may lie deeper than the 107 bytes that a socket's address has room for.
  server.listen = "unix:/proc/self/fd/" + std::to_string(run_dir.get()) + "/registry.sock";
  server.unix_mode = 0666;  // the directory decides who gets here
  server.max_connections = kMaxConnections;
  auto handler = [this](http::Exchange& exchange) -> Awaitable<void> { return proxy_->handle(exchange); };
  // Bound while the directory may still be written to; nothing is accepted before the loop runs.
  GB_TRY(const auto listening, http::Server::listen(loop_.get_executor(), server, handler));
  GB_TRYV(drop_privileges(options_));
  GB_TRYV(die_with_parent(parent));
  Control control(options_.control_fd, loop_.get_executor());
  auto on_event = [&control](boost::json::object event) { control.send({{"op", "event"}, {"event", std::move(event)}}); };
  GB_TRY(proxy_, Proxy::create({loop_.get_executor(), options_.cache_dir, options_.ca_bundle, std::move(on_event)}));
  spawn(loop_.get_executor(), "registry.control", serve(control));
  control.send({{"op", "ready"}});
  loop_.run();
  // The daemon is gone, and with it everybody who could want an answer. What was under way is cleared away by the next start.
  ::unlink((options_.run_dir + "/registry.sock").c_str());
  ::_exit(0);
}

Awaitable<void> Process::serve(Control& control) {
  co_await control.run([this](const boost::json::object& operation) { return apply(operation); });
  loop_.stop();
}

Result<void> Process::apply(const boost::json::object& operation) {
  const auto* op = operation.if_contains("op");
  if (op && *op == "ping") return {};
  if (op && *op == "config") {
    GB_TRY(const auto settings, parse_settings(operation));
    return proxy_->configure(settings);
  }
  const boost::json::value value(operation);
  json::Reader reader(value);
  GB_TRY(const auto name, reader.one_of("op", {"sandbox", "forget"}).required());
  GB_TRY(const auto sandbox, reader.string("sandbox", 1, 200).required());
  if (name == "forget") {
    proxy_->forget(sandbox);
    return {};
  }
  const auto* policy = reader.any("policy");
  GB_TRY(auto parsed, policy::parse_package_policy(policy ? *policy : boost::json::value(), "policy"));
  proxy_->set_policy(sandbox, std::move(parsed));
  return {};
}

}  // namespace

int run_registry_proxy(const RegistryOptions& options) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  Process process(options);
  const auto result = process.run();
  if (!result) log::error("registry.failed", {{"message", result.error().message}});
  return result ? 0 : 1;
}

}  // namespace glovebox::registry
