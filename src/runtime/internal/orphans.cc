// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/orphans.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "sys/files.h"

namespace glovebox::runtime {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(500);
constexpr char kEngineName[] = "exe\n";  // runsc starts itself as /proc/self/exe

}  // namespace

bool reap_groups(const std::vector<pid_t>& groups) {
  bool empty = true;
  for (pid_t group : groups) {
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-group, nullptr, WNOHANG)) > 0) {
    }
    empty = empty && reaped < 0;  // ECHILD: no child of ours in the group
  }
  return empty;
}

OrphanReaper::~OrphanReaper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OrphanReaper::add(const std::string& id, const sys::ProcessId& engine,
                       std::vector<pid_t> groups) {
  std::lock_guard lock(mutex_);
  entries_[id] = Entry{engine, std::move(groups)};
  engines_[id] = engine.pid;
  if (thread_.joinable()) return;
  sigset_t all, before;  // signals are for the daemon's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void OrphanReaper::remove(const std::string& id) {
  std::lock_guard lock(mutex_);
  entries_.erase(id);
  engines_.erase(id);
}

void OrphanReaper::reap_strays() {
  std::lock_guard lock(mutex_);
  for (pid_t pid : sys::children()) {
    auto process = sys::identify(pid);
    if (!process || sys::is_alive(*process) || ::getsid(pid) != pid) continue;
    auto name = sys::read_file("/proc/" + std::to_string(pid) + "/comm");
    if (!name || *name != kEngineName) continue;
    bool is_first = std::any_of(engines_.begin(), engines_.end(),
                                [pid](const auto& engine) { return engine.second == pid; });
    if (!is_first) ::waitpid(pid, nullptr, WNOHANG);
  }
}

// A group's number may be given to somebody else once the group is empty, so an ended engine's
// groups are dropped at once.
void OrphanReaper::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::erase_if(entries_, [](const auto& entry) {
      bool ended = !sys::is_alive(entry.second.engine);
      return reap_groups(entry.second.groups) && ended;
    });
    wake_.wait_for(lock, kInterval);
  }
}

}  // namespace glovebox::runtime
