// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/own_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/glovebox/api_client.h"
#include "programs/glovebox/fields.h"

namespace glovebox::cli {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPoll{30};
constexpr milliseconds kStartTime = std::chrono::seconds(120);
constexpr milliseconds kStopTime = std::chrono::seconds(30);

// flock(2) without stopping the loop.
Async<void> lock(int fd, int mode, milliseconds patience, std::string path) {
  const auto deadline = after(patience);
  while (::flock(fd, mode | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) co_return fail_errno(path);
    if (Clock::now() >= deadline)
      co_return fail(Code::kTimeout, path + ": another command holds the lock for too long");
    co_await sleep_for(kPoll);
  }
  co_return Result<void>();
}

Result<UniqueFd> open_lock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(path);
  return fd;
}

Async<void> ready(Target target) {
  GB_CO_TRY(auto api, ApiClient::make(target.url, target.key));
  GB_CO_TRYV(co_await api.call("GET", "/readyz", {}, std::chrono::seconds(5)));
  co_return Result<void>();
}

// `glovebox up` as a child in a session of its own, so that this terminal's Ctrl-C does not reach
// it. -1 with errno.
pid_t spawn_daemon(const std::string& data_dir, int log_fd) {
  std::array<const char*, 9> argv = {"glovebox",       "up",       "--data-dir",
                                     data_dir.c_str(), "--listen", "127.0.0.1:0",
                                     "--log-level",    "warn",     nullptr};
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 0);
  ::dup2(log_fd, 1);
  ::dup2(log_fd, 2);
  ::execv("/proc/self/exe", const_cast<char**>(argv.data()));
  ::_exit(127);
}

std::string log_tail(int fd) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  std::string text(static_cast<size_t>(std::min<off_t>(std::max<off_t>(size, 0), 2000)), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_gone(pid_t pid) {
  int status = 0;
  const pid_t reaped = ::waitpid(pid, &status, WNOHANG);
  return reaped == pid || (reaped < 0 && ::kill(pid, 0) != 0 && errno == ESRCH);
}

Async<bool> has_live_sandboxes(Target target) {
  GB_CO_TRY(auto api, ApiClient::make(target.url, target.key));
  GB_CO_TRY(const auto page, co_await api.call("GET", "/v1/sandboxes?limit=1"));
  co_return !items(page, "sandboxes").empty();
}

}  // namespace

DaemonLease::~DaemonLease() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

bool DaemonLease::is_ours(int pid) const {
  char text[32] = {};
  return ::pread(lock_fd_, text, sizeof text - 1, 0) > 0 && parse_int(text).value_or(0) == pid;
}

Async<std::unique_ptr<DaemonLease>> DaemonLease::acquire(const Settings& settings) {
  std::unique_ptr<DaemonLease> lease(new DaemonLease());
  auto found = find_target(settings);
  // A daemon elsewhere, or one of this host that this user may use but whose directory is closed to
  // him.
  const bool is_foreign =
      !settings.url.empty() || (found && ::access(settings.data_dir.c_str(), W_OK) != 0);
  if (is_foreign) {
    if (!found) co_return fail(std::move(found).error());
    lease->target_ = std::move(*found);
    co_return std::move(lease);
  }
  std::error_code ec;
  if (std::filesystem::create_directories(settings.data_dir, ec)) {
    std::filesystem::permissions(settings.data_dir, std::filesystem::perms::owner_all, ec);
  }
  if (ec) {
    co_return fail(Code::kUnavailable, "no daemon runs, and this user cannot start one on " +
                                           settings.data_dir + ": " + ec.message());
  }
  lease->data_dir_ = settings.data_dir;
  const std::string path = settings.data_dir + "/run.lock";
  GB_CO_TRY(auto in_use, open_lock(path));
  lease->lock_fd_ = in_use.release();
  GB_CO_TRYV(co_await lock(lease->lock_fd_, LOCK_SH, kStartTime, path));
  GB_CO_TRYV(co_await lease->start(settings));
  co_return std::move(lease);
}

Async<void> DaemonLease::start(const Settings& settings) {
  // One starter at a time: the others find its daemon when they get here.
  const std::string path = data_dir_ + "/run-start.lock";
  GB_CO_TRY(const auto starting, open_lock(path));
  GB_CO_TRYV(co_await lock(starting.get(), LOCK_EX, kStartTime, path));
  if (running_daemon(data_dir_)) {
    GB_CO_TRY(target_, find_target(settings));
    if (co_await ready(target_)) co_return Result<void>();
  }
  const UniqueFd log(::memfd_create("glovebox-up-log", MFD_CLOEXEC));
  const pid_t child = spawn_daemon(data_dir_, log.get());
  if (child < 0) co_return fail_errno("starting a daemon");
  const auto deadline = after(kStartTime);
  while (Clock::now() < deadline) {
    const bool ended = is_gone(child);
    const auto daemon = running_daemon(data_dir_);
    if (daemon) {  // the child, or one that somebody else started meanwhile and that made the child
                   // give up
      auto found = find_target(settings);
      if (found && co_await ready(*found)) {
        target_ = std::move(*found);
        if (daemon->pid == child) {
          const std::string pid = std::to_string(child);
          if (::ftruncate(lock_fd_, 0) != 0 || ::pwrite(lock_fd_, pid.data(), pid.size(), 0) < 0)
            co_return fail_errno(data_dir_ + "/run.lock");
        }
        co_return Result<void>();
      }
    } else if (ended) {
      co_return fail(
          Code::kUnavailable,
          "no daemon runs, and one for this command did not start:\n" + log_tail(log.get()));
    }
    co_await sleep_for(kPoll);
  }
  if (!is_gone(child)) ::kill(child, SIGTERM);
  co_return fail(Code::kUnavailable,
                 "a daemon for this command was not ready in time:\n" + log_tail(log.get()));
}

Async<void> DaemonLease::release() {
  if (lock_fd_ < 0 || ::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0)
    co_return Result<void>();  // others use it and will stop it
  const auto daemon = running_daemon(data_dir_);
  if (!daemon || !is_ours(daemon->pid)) co_return Result<void>();
  const auto busy = co_await has_live_sandboxes(target_);
  if (!busy || *busy)
    co_return Result<void>();  // sandboxes that were made to stay need their daemon
  ::kill(daemon->pid, SIGTERM);
  const auto deadline = after(kStopTime);
  while (!is_gone(daemon->pid)) {
    if (Clock::now() >= deadline)
      co_return fail(Code::kTimeout, "the daemon of this command does not stop (pid " +
                                         std::to_string(daemon->pid) + ")");
    co_await sleep_for(kPoll);
  }
  co_return Result<void>();
}

}  // namespace glovebox::cli
