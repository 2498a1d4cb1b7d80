// SPDX-License-Identifier: Apache-2.0
#include "sys/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "sys/files.h"

namespace glovebox::sys {
namespace {

struct Stat {
  char state = 0;
  pid_t parent = 0;
  uint64_t start_time = 0;
};

// The command name may hold spaces and parentheses; fields are counted from the last ')'.
std::optional<Stat> read_stat(pid_t pid) {
  auto text = read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return std::nullopt;
  size_t end = text->rfind(')');
  if (end == std::string::npos || end + 2 >= text->size()) return std::nullopt;
  auto words = split(text->substr(end + 2), ' ');
  if (words.size() < 20 || words[0].empty()) return std::nullopt;
  return Stat{words[0][0], static_cast<pid_t>(parse_int(words[1]).value_or(0)),
              static_cast<uint64_t>(parse_int(words[19]).value_or(0))};
}

constexpr size_t kStackBytes = 256 * 1024;

class Stack {
 public:
  Stack()
      : base_(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ~Stack() {
    if (base_ != MAP_FAILED) ::munmap(base_, kStackBytes);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* top() const {
    return base_ == MAP_FAILED ? nullptr : static_cast<char*>(base_) + kStackBytes;
  }

 private:
  void* base_;
};

}  // namespace

std::optional<ProcessId> identify(pid_t pid) {
  auto stat = read_stat(pid);
  if (!stat) return std::nullopt;
  return ProcessId{pid, stat->start_time};
}

std::string boot_id() {
  static const std::string id =
      read_file("/proc/sys/kernel/random/boot_id").value_or("").substr(0, 36);
  return id;
}

bool is_present(const ProcessId& id) {
  auto now = id.pid > 0 ? identify(id.pid) : std::nullopt;
  return now && *now == id;
}

bool is_alive(const ProcessId& id) {
  auto stat = id.pid > 0 ? read_stat(id.pid) : std::nullopt;
  return stat && stat->start_time == id.start_time && stat->state != 'Z' && stat->state != 'X';
}

Result<UniqueFd> open_pidfd(const ProcessId& id) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, id.pid, 0)));
  if (!fd && errno != ESRCH && errno != EINVAL) return fail_errno("pidfd_open");
  auto now = fd ? identify(id.pid)
                : std::nullopt;  // checked after opening: the descriptor holds the number
  if (!now || now->start_time != id.start_time) return fail(Code::kNotFound, "the process is gone");
  return fd;
}

void kill_process(const ProcessId& id) {
  if (auto fd = open_pidfd(id))
    (void)::syscall(SYS_pidfd_send_signal, fd->get(), SIGKILL, nullptr, 0);
}

bool wait_readable(int fd, std::chrono::milliseconds patience) {
  auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd poll_fd{fd, POLLIN, 0};
    int rc = ::poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (rc > 0) return true;
    if (rc == 0 || errno != EINTR) return false;
  }
}

std::optional<int> peek_status(pid_t pid) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
      info.si_pid != pid) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) return (info.si_status & 0xff) << 8;
  return info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
}

void reap_ended(std::vector<ProcessId>* members) {
  auto is_member = [&](pid_t pid) {
    return std::any_of(members->begin(), members->end(),
                       [&](const auto& m) { return m.pid == pid; });
  };
  auto ended = [&](const ProcessId& member) {
    auto stat = read_stat(member.pid);
    if (!stat || stat->start_time != member.start_time) return true;
    if (stat->state != 'Z') return false;
    if (stat->parent == ::getpid()) return ::waitpid(member.pid, nullptr, WNOHANG) == member.pid;
    return !is_member(stat->parent);
  };
  std::vector<ProcessId> left;
  for (const auto& member : *members) {
    if (!ended(member)) left.push_back(member);
  }
  *members = std::move(left);
}

std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  for (const auto& task : list_directory("/proc/self/task")) {
    auto text = read_file("/proc/self/task/" + task + "/children");
    if (!text) continue;
    for (const auto& word : split(*text, ' ')) {
      if (auto pid = parse_int(word); pid && *pid > 0) pids.push_back(static_cast<pid_t>(*pid));
    }
  }
  return pids;
}

int find_descriptor(pid_t pid, const std::string& target) {
  std::string directory = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& name : list_directory(directory)) {
    if (read_link(directory + "/" + name) == target)
      return static_cast<int>(parse_int(name).value_or(-1));
  }
  return -1;
}

// A handler of ours must not run in the child, which has our memory: every signal stays blocked
// from before the clone.
Result<Spawned> spawn_sharing_memory(int flags, int (*entry)(void*), void* argument) {
  Stack stack;
  if (stack.top() == nullptr) return fail_errno("mmap");
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int pidfd = -1;
  pid_t pid = ::clone(entry, stack.top(), flags | CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                      argument, &pidfd);
  int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return fail_errno("clone", error);
  return Spawned{pid, UniqueFd(pidfd)};
}

}  // namespace glovebox::sys
