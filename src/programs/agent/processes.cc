// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/agent/operations.h"
#include "programs/agent/tree.h"

namespace glovebox::agent {
namespace {

constexpr size_t kMaxCommandLine = 4096;  // shown, for each process
constexpr size_t kMaxListBytes = 3 << 20;

std::string read_small(const std::string& path, size_t limit) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(limit, '\0');
  const ssize_t n = fd ? ::read(fd.get(), text.data(), text.size()) : 0;
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

double number_of(const std::string& text, std::string_view key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + key.size(), nullptr);
}

int64_t boot_time_ms() {
  timespec now, up;
  ::clock_gettime(CLOCK_REALTIME, &now);
  ::clock_gettime(CLOCK_BOOTTIME, &up);
  auto ms = [](const timespec& t) { return t.tv_sec * 1000 + t.tv_nsec / 1000000; };
  return ms(now) - ms(up);
}

bool is_own(const Operation& op, pid_t pid) {
  return pid == ::getpid() || std::find(op.own.begin(), op.own.end(), pid) != op.own.end();
}

// Process → the execution whose supervisor is above it.
std::unordered_map<pid_t, std::string> execution_of(const Operation& op,
                                                    const std::vector<Process>& processes) {
  std::unordered_map<pid_t, std::string> out;
  for (const auto& [root, id] : op.roots) {
    for (const Process& process : descendants(processes, root)) out[process.pid] = id;
  }
  return out;
}

json::array command_line(const std::string& directory) {
  const std::string text = read_small(directory + "cmdline", kMaxCommandLine);
  json::array argv;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    argv.push_back(json_bytes(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  return argv;
}

// Nothing when it ended meanwhile. Fields that this kernel's /proc does not have are left out.
std::optional<json::object> describe(Operation& op, const Process& process, int64_t boot_ms) {
  const std::string directory = "/proc/" + std::to_string(process.pid) + "/";
  const std::string status = read_small(directory + "status", 8192);
  if (status.empty()) return std::nullopt;
  json::object out;
  out["pid"] = process.pid;
  out["ppid"] = is_own(op, process.parent) ? 0 : process.parent;
  const double uid = number_of(status, "\nUid:");
  if (uid >= 0) out["user"] = json_bytes(op.users.user_name(static_cast<uid_t>(uid)));
  const double rss_kb = number_of(status, "\nVmRSS:");
  out["rss_bytes"] = rss_kb > 0 ? static_cast<int64_t>(rss_kb) * 1024 : 0;
  out["argv"] = command_line(directory);
  out["state"] = std::string(1, process.state);
  char cwd[PATH_MAX];
  const ssize_t n = ::readlink((directory + "cwd").c_str(), cwd, sizeof cwd);
  if (n > 0) out["cwd"] = json_bytes(std::string_view(cwd, static_cast<size_t>(n)));
  const auto ticks = static_cast<int64_t>(process.start_ticks);
  out["started_ms"] = boot_ms + ticks * 1000 / ::sysconf(_SC_CLK_TCK);
  return out;
}

}  // namespace

Result<void> op_processes(Operation& op) {
  const auto processes = all_processes();
  const auto executions = execution_of(op, processes);
  const int64_t boot_ms = boot_time_ms();
  json::array list;
  size_t bytes = 0;
  bool more = false;
  for (const Process& process : processes) {
    if (is_own(op, process.pid)) continue;
    auto described = describe(op, process, boot_ms);
    if (!described) continue;
    auto execution = executions.find(process.pid);
    if (execution != executions.end()) (*described)["execution"] = execution->second;
    bytes += to_text(*described).size() + 1;
    if (bytes > kMaxListBytes) {
      more = true;
      break;
    }
    list.push_back(*std::move(described));
  }
  return op.request.respond({{"processes", std::move(list)}, {"more", more}});
}

Result<void> op_signal(Operation& op) {
  GB_TRY(const int64_t pid, int_field(op.fields, "pid", 0, 1, INT_MAX));
  GB_TRY(const int64_t number, int_field(op.fields, "signal", SIGTERM, 1, 64));
  GB_TRY(const bool tree, bool_field(op.fields, "tree", false));
  // From the list, which has no threads: /proc/<id> opens for a thread too, and a signal to one of the agent's would be the agent's.
  const auto processes = all_processes();
  const auto target = std::find_if(processes.begin(), processes.end(), [pid](const Process& process) { return process.pid == pid; });
  if (target == processes.end() || is_own(op, target->pid) || target->state == 'Z') {
    return fail(Code::kNotFound, "no process " + std::to_string(pid));
  }
  if (tree) {
    signal_with_descendants(processes, *target, static_cast<int>(number));
  } else if (!signal_process(*target, static_cast<int>(number))) {
    return fail(Code::kNotFound, "no process " + std::to_string(pid));
  }
  return op.request.respond({});
}

Result<void> op_stats(Operation& op) {
  json::object out;
  size_t count = 0;
  for (const Process& process : all_processes()) count += is_own(op, process.pid) ? 0 : 1;
  out["processes"] = count;
  const std::string memory = read_small("/proc/meminfo", 8192);
  const double total = number_of(memory, "MemTotal:");
  const double available = number_of(memory, "MemAvailable:");
  if (total >= 0) {
    json::object object{{"total_bytes", static_cast<int64_t>(total) * 1024}};
    if (available >= 0) object["available_bytes"] = static_cast<int64_t>(available) * 1024;
    out["memory"] = std::move(object);
  }
  double load[3];
  if (std::sscanf(read_small("/proc/loadavg", 256).c_str(), "%lf %lf %lf", &load[0], &load[1],
                  &load[2]) == 3) {
    out["load"] = {load[0], load[1], load[2]};
  }
  return op.request.respond(std::move(out));
}

Result<void> op_sync(Operation& op) {
  ::sync();
  return op.request.respond({});
}

}  // namespace glovebox::agent
