// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "programs/agent/worker_thread.h"

namespace glovebox::agent {
namespace {

constexpr int kQuickPasses = 8;
constexpr unsigned kKernelThread = 0x00200000;  // PF_KTHREAD of include/linux/sched.h: no process of anybody's

// One pass over the direct children as the kernel lists them: far faster than all of /proc, so that
// even a chain of processes that each fork and exit at once is caught as soon as it falls to the
// supervisor. Not on every kernel.
void kill_direct_children(pid_t supervisor) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task/%d/children", supervisor, supervisor);
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return;
  char buffer[4096];
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer - 1);
  if (n <= 0) return;
  buffer[n] = '\0';
  for (char* at = buffer; *at != '\0';) {
    char* end = nullptr;
    const long pid = std::strtol(at, &end, 10);
    // A number that the buffer's end may have cut is left for the next pass.
    if (end == at || *end != ' ') break;
    if (pid > 1) ::kill(static_cast<pid_t>(pid), SIGKILL);
    at = end + 1;
  }
}

bool is_empty(const Supervisor& supervisor) {
  const Phase phase = supervisor.phase.load(std::memory_order_acquire);
  return phase == Phase::kGone || phase == Phase::kFailed || phase == Phase::kIdle;
}

}  // namespace

std::optional<Process> read_process(pid_t pid) {
  char buffer[1024];
  std::snprintf(buffer, sizeof buffer, "/proc/%d/stat", pid);
  UniqueFd fd(::open(buffer, O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  const ssize_t n = ::read(fd.get(), buffer, sizeof buffer - 1);
  if (n <= 0) return std::nullopt;
  buffer[n] = '\0';
  const char* after_name = std::strrchr(buffer, ')');  // the name may hold anything, also ")"
  Process process;
  process.pid = pid;
  unsigned long long start = 0;
  unsigned flags = 0;
  if (after_name == nullptr ||
      std::sscanf(after_name + 1,
                  " %c %d %d %*s %*s %*s %u %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &process.state, &process.parent, &process.group, &flags, &start) != 5) {
    return std::nullopt;
  }
  if ((flags & kKernelThread) != 0) return std::nullopt;
  process.start_ticks = start;
  return process;
}

std::vector<Process> all_processes() {
  std::vector<Process> out;
  DIR* dir = ::opendir("/proc");
  if (dir == nullptr) return out;
  while (const dirent* entry = ::readdir(dir)) {
    char* end = nullptr;
    const long pid = std::strtol(entry->d_name, &end, 10);
    if (pid <= 0 || *end != '\0') continue;
    if (auto process = read_process(static_cast<pid_t>(pid))) out.push_back(*process);
  }
  ::closedir(dir);
  return out;
}

std::vector<Process> descendants(const std::vector<Process>& processes, pid_t root) {
  std::unordered_multimap<pid_t, const Process*> children;
  for (const Process& process : processes) children.emplace(process.parent, &process);
  std::vector<Process> out;
  std::vector<pid_t> todo = {root};
  while (!todo.empty()) {
    auto [from, to] = children.equal_range(todo.back());
    todo.pop_back();
    for (; from != to; ++from) {
      if (out.size() > processes.size())
        return out;  // /proc is not read at one instant: no cycle may hold us
      out.push_back(*from->second);
      todo.push_back(from->second->pid);
    }
  }
  return out;
}

bool signal_process(const Process& process, int signal) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0));
  if (fd < 0) {
    if (errno == ESRCH || errno == EINVAL || errno == ENOENT) return false;  // the latter two: a thread
    return ::kill(process.pid, signal) == 0;  // no pidfds here
  }
  const UniqueFd owner(fd);
  const auto now = read_process(process.pid);
  if (!now || now->start_ticks != process.start_ticks) return false;
  if (::syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0) == 0) return true;
  return errno == ENOSYS && ::kill(process.pid, signal) == 0;
}

void signal_all(const std::vector<Process>& victims, int signal, std::set<pid_t> shared) {
  shared.insert(::getpgrp());  // a child has it until its setsid()
  std::set<pid_t> groups;
  for (const Process& process : victims) {
    if (process.state == 'Z') continue;
    if (process.group > 1 && !shared.contains(process.group)) {
      if (groups.insert(process.group).second) ::kill(-process.group, signal);
    } else {
      signal_process(process, signal);
    }
  }
}

void signal_with_descendants(const std::vector<Process>& processes, const Process& root, int signal) {
  std::vector<Process> victims = descendants(processes, root.pid);
  victims.push_back(root);
  std::set<pid_t> pids, shared;
  for (const Process& process : victims) pids.insert(process.pid);
  for (const Process& process : processes) {
    if (!pids.contains(process.pid)) shared.insert(process.group);
  }
  signal_all(victims, signal, std::move(shared));
}

Killer::Killer(Loop& loop) : loop_(loop) {
  GB_ASSERT(start_thread([this] { run(); }));
}

void Killer::signal_tree(Supervisor& supervisor, int signal, std::function<void()> done) {
  ++supervisor.kill_jobs;
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  jobs_.push_back(
      Job{&supervisor, signal, false, [done = std::move(done)](bool) { done(); }, now, now});
  wake_.notify_one();
}

void Killer::kill_tree(Supervisor& supervisor, std::function<void(bool)> done) {
  ++supervisor.kill_jobs;
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  jobs_.push_back(Job{&supervisor, SIGKILL, true, std::move(done), now, now + kGiveUp});
  wake_.notify_one();
}

// True when the job is finished.
bool Killer::work(Job& job) {
  Supervisor& supervisor = *job.supervisor;
  if (is_empty(supervisor)) return true;
  if (!job.until_empty) {
    signal_all(descendants(all_processes(), supervisor.pid), job.signal);
    return true;
  }
  for (int i = 0; i < kQuickPasses && !is_empty(supervisor); ++i)
    kill_direct_children(supervisor.pid);
  if (is_empty(supervisor)) return true;
  signal_all(descendants(all_processes(), supervisor.pid), SIGKILL);
  if (job.done && std::chrono::steady_clock::now() > job.give_up) {
    loop_.post([done = std::exchange(job.done, nullptr)] { done(false); });
  }
  return is_empty(supervisor);
}

void Killer::finish(Job& job, bool empty) {
  loop_.post([supervisor = job.supervisor, done = std::move(job.done), empty] {
    --supervisor->kill_jobs;
    if (done) done(empty);
    if (supervisor->released && supervisor->kill_jobs == 0) supervisor->pool->release(*supervisor);
  });
}

void Killer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (jobs_.empty()) {
      wake_.wait(lock);
      continue;
    }
    auto job = std::min_element(jobs_.begin(), jobs_.end(),
                                [](const Job& a, const Job& b) { return a.next < b.next; });
    if (job->next > std::chrono::steady_clock::now()) {
      wake_.wait_until(lock, job->next);
      continue;
    }
    lock.unlock();
    const bool finished = work(*job);
    if (finished) finish(*job, true);
    lock.lock();
    if (finished) {
      jobs_.erase(job);
      continue;
    }
    job->next = std::chrono::steady_clock::now() + job->pause;
    job->pause = std::min(job->pause * 2, std::chrono::milliseconds(100));
  }
}

}  // namespace glovebox::agent
