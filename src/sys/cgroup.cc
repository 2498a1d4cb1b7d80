// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <set>
#include <thread>

#include "base/text.h"
#include "sys/files.h"
#include "sys/mounts.h"

namespace glovebox::sys {
namespace {

using namespace std::chrono_literals;

constexpr const char* kV1Controllers[] = {"memory", "pids", "cpu", "cpuacct", "freezer"};
constexpr const char* kV2Controllers[] = {"memory", "pids", "cpu"};
constexpr int64_t kPeriodUs = 100000;
constexpr int kAttempts = 64;  // to make a group while others remove its empty parents

int64_t quota_us(double cpus) {
  return std::max<int64_t>(1000, std::llround(cpus * kPeriodUs));
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

uint64_t number_in(const std::string& path) {
  auto text = read_file(path);
  if (!text) return 0;
  return static_cast<uint64_t>(parse_int(trimmed(*text)).value_or(0));
}

// "key value" lines.
uint64_t field_in(const std::string& path, std::string_view key) {
  auto text = read_file(path);
  if (!text) return 0;
  for (const auto& line : split(*text, '\n')) {
    auto words = split(line, ' ');
    if (words.size() == 2 && words[0] == key)
      return static_cast<uint64_t>(parse_int(words[1]).value_or(0));
  }
  return 0;
}

bool has_word(const std::string& text, std::string_view word) {
  auto words = split(trimmed(text), ' ');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Waits for `done` in steps that grow from 50 us to 5 ms.
template <class Done>
bool wait_until(std::chrono::milliseconds patience, Done done) {
  auto end = std::chrono::steady_clock::now() + patience;
  for (auto pause = 50us; !done(); pause = std::min(pause * 2, std::chrono::microseconds(5ms))) {
    if (std::chrono::steady_clock::now() >= end) return done();
    std::this_thread::sleep_for(pause);
  }
  return true;
}

std::map<std::string, std::string> find_mounts() {
  std::map<std::string, std::string> found;
  std::string unified;
  for (const auto& entry : mount_table()) {
    if (entry.root != "/") continue;
    if (entry.type == "cgroup2") unified = entry.target;
    if (entry.type != "cgroup") continue;
    for (const auto& option : split(entry.super_options, ',')) {
      for (const char* controller : kV1Controllers) {
        if (option == controller) found[controller] = entry.target;
      }
    }
  }
  if (unified.empty()) return found;
  auto controllers = read_file(unified + "/cgroup.controllers");
  bool complete = controllers.has_value();
  for (const char* controller : kV2Controllers)
    complete = complete && has_word(*controllers, controller);
  if (complete) return {{"unified", unified}};
  return found;
}

}  // namespace

CgroupTree::CgroupTree(std::map<std::string, std::string> mounts, std::string parent)
    : mounts_(std::move(mounts)), parent_(std::move(parent)) {}

Result<CgroupTree> CgroupTree::detect(const std::string& parent) {
  auto mounts = find_mounts();
  if (mounts.contains("unified")) return CgroupTree(std::move(mounts), parent);
  std::string missing;
  for (const char* controller : kV1Controllers) {
    if (!mounts.contains(controller))
      missing += std::string(missing.empty() ? "" : ", ") + controller;
  }
  if (!missing.empty()) {
    return fail(Code::kRuntimeUnavailable,
                "neither cgroup v2 with memory, pids and cpu nor all cgroup v1 hierarchies are "
                "mounted; missing: " +
                    missing);
  }
  return CgroupTree(std::move(mounts), parent);
}

std::string CgroupTree::directory(const std::string& controller, const std::string& name) const {
  return mounts_.at(version() == 2 ? "unified" : controller) + "/" + parent_ +
         (name.empty() ? "" : "/" + name);
}

// v2 hands a controller down one level at a time.
Result<void> CgroupTree::prepare_parent(const std::string& mount) const {
  std::string path = mount;
  auto parts = split(parent_, '/');
  for (size_t i = 0; i <= parts.size(); ++i) {
    if (i > 0) GB_TRYV(make_directory(path += "/" + parts[i - 1], 0755));
    if (version() != 2) continue;
    auto active = read_file(path + "/cgroup.subtree_control");
    for (const char* controller : kV2Controllers) {
      if (active && has_word(*active, controller)) continue;
      auto done = write_file(path + "/cgroup.subtree_control", std::string("+") + controller);
      if (!done)
        return fail(Code::kRuntimeUnavailable,
                    "cannot delegate " + std::string(controller) + ": " + done.error().message);
    }
  }
  return {};
}

Result<void> CgroupTree::create(const std::string& name, const CgroupLimits& limits) const {
  for (const auto& [controller, mount] : mounts_) {
    std::string path = directory(controller, name);
    // Another instance that leaves this host may remove the parents again before they are used.
    for (int attempt = 0; ::mkdir(path.c_str(), 0755) < 0 && errno != EEXIST; ++attempt) {
      if (errno != ENOENT || attempt == kAttempts) return fail_errno("mkdir " + path);
      auto prepared = prepare_parent(mount);
      if (!prepared && attempt + 1 == kAttempts) return prepared;
    }
  }
  return version() == 2 ? limit_v2(name, limits) : limit_v1(name, limits);
}

Result<void> CgroupTree::limit_v1(const std::string& name, const CgroupLimits& limits) const {
  std::string memory = directory("memory", name);
  std::string bytes = std::to_string(limits.memory_bytes);
  // Absent where the kernel does not account swap; then swapping is prevented by swappiness alone.
  // It may never be below the plain limit, so it is lifted first.
  std::string with_swap = memory + "/memory.memsw.limit_in_bytes";
  bool accounts_swap = sys::exists(with_swap);
  if (accounts_swap) GB_TRYV(write_file(with_swap, "-1"));
  GB_TRYV(write_file(memory + "/memory.limit_in_bytes", bytes));
  if (accounts_swap) GB_TRYV(write_file(with_swap, bytes));
  GB_TRYV(write_file(memory + "/memory.swappiness", "0"));
  GB_TRYV(write_file(directory("pids", name) + "/pids.max", std::to_string(limits.processes)));
  std::string cpu = directory("cpu", name);
  GB_TRYV(write_file(cpu + "/cpu.cfs_period_us", std::to_string(kPeriodUs)));
  return write_file(cpu + "/cpu.cfs_quota_us", std::to_string(quota_us(limits.cpus)));
}

Result<void> CgroupTree::limit_v2(const std::string& name, const CgroupLimits& limits) const {
  std::string path = directory("unified", name);
  GB_TRYV(write_file(path + "/memory.max", std::to_string(limits.memory_bytes)));
  if (sys::exists(path + "/memory.swap.max")) GB_TRYV(write_file(path + "/memory.swap.max", "0"));
  if (limits.kill_as_one) GB_TRYV(write_file(path + "/memory.oom.group", "1"));
  GB_TRYV(write_file(path + "/pids.max", std::to_string(limits.processes)));
  return write_file(path + "/cpu.max",
                    std::to_string(quota_us(limits.cpus)) + " " + std::to_string(kPeriodUs));
}

// v1: "tasks", because moving only itself spares the thread the wait for an RCU grace period that
// cgroup.procs costs.
Result<std::vector<UniqueFd>> CgroupTree::entries(const std::string& name) const {
  std::vector<UniqueFd> files;
  for (const auto& [controller, mount] : mounts_) {
    const char* file = version() == 2 ? "/cgroup.procs" : "/tasks";
    GB_TRY(auto fd, open_fd(directory(controller, name) + file, O_WRONLY));
    files.push_back(std::move(fd));
  }
  return files;
}

Result<bool> CgroupTree::is_frozen(const std::string& name) const {
  if (version() == 2) {
    std::string events = directory("unified", name) + "/cgroup.events";
    if (!sys::exists(events)) return fail(Code::kNotFound, "no cgroup " + name);
    return field_in(events, "frozen") == 1;
  }
  auto state = read_file(directory("freezer", name) + "/freezer.state");
  if (!state) return fail(Code::kNotFound, "no cgroup " + name);
  return trimmed(*state) == "FROZEN";
}

Result<void> CgroupTree::set_frozen(const std::string& name, bool frozen) const {
  bool v2 = version() == 2;
  std::string path = v2 ? directory("unified", name) + "/cgroup.freeze"
                        : directory("freezer", name) + "/freezer.state";
  auto written = write_file(path, v2 ? (frozen ? "1" : "0") : (frozen ? "FROZEN" : "THAWED"));
  if (!written) {
    if (!sys::exists(path)) return fail(Code::kNotFound, "no cgroup " + name);
    return written;
  }
  if (!frozen) return {};  // the kernel wakes the processes by itself
  // Version 1 can get stuck half way while processes are being made; asking again takes the new
  // ones along.
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (wait_until(500ms, [&] { return is_frozen(name).value_or(true); })) return {};
    GB_TRYV(write_file(path, v2 ? "1" : "FROZEN"));
  }
  (void)set_frozen(name, false);
  return fail(Code::kTimeout, "cgroup " + name + " did not freeze");
}

Result<void> CgroupTree::freeze(const std::string& name) const {
  return set_frozen(name, true);
}
Result<void> CgroupTree::thaw(const std::string& name) const {
  return set_frozen(name, false);
}

Result<CgroupUsage> CgroupTree::usage(const std::string& name) const {
  if (!exists(name)) return fail(Code::kNotFound, "no cgroup " + name);
  CgroupUsage u;
  std::string memory = directory("memory", name);
  u.processes = number_in(directory("pids", name) + "/pids.current");
  if (version() == 2) {
    u.cpu_us = field_in(memory + "/cpu.stat", "usage_usec");
    u.throttled_us = field_in(memory + "/cpu.stat", "throttled_usec");
    u.memory_bytes = number_in(memory + "/memory.current");
    u.memory_peak_bytes = number_in(memory + "/memory.peak");
    u.oom_kills = field_in(memory + "/memory.events", "oom_kill");
    return u;
  }
  u.cpu_us = number_in(directory("cpuacct", name) + "/cpuacct.usage") / 1000;
  u.throttled_us = field_in(directory("cpu", name) + "/cpu.stat", "throttled_time") / 1000;
  u.memory_bytes = number_in(memory + "/memory.usage_in_bytes");
  u.memory_peak_bytes = number_in(memory + "/memory.max_usage_in_bytes");
  u.oom_kills = field_in(memory + "/memory.oom_control", "oom_kill");
  return u;
}

// A half-made group may exist in some hierarchies only.
std::vector<pid_t> CgroupTree::processes(const std::string& name) const {
  std::set<pid_t> pids;
  for (const auto& [controller, mount] : mounts_) {
    auto text = read_file(directory(controller, name) + "/cgroup.procs");
    if (!text) continue;
    for (const auto& line : split(*text, '\n')) {
      if (auto pid = parse_int(line); pid && *pid > 0) pids.insert(static_cast<pid_t>(*pid));
    }
  }
  return {pids.begin(), pids.end()};
}

bool CgroupTree::exists(const std::string& name) const {
  return std::any_of(mounts_.begin(), mounts_.end(),
                     [&](const auto& m) { return sys::exists(directory(m.first, name)); });
}

// A frozen v1 process dies only once it is thawed; cgroup.kill takes care of that itself.
bool CgroupTree::kill_once(const std::string& name) const {
  auto pids = processes(name);
  if (pids.empty()) return true;
  bool at_once =
      version() == 2 && write_file(directory("unified", name) + "/cgroup.kill", "1").has_value();
  if (!at_once) {
    for (pid_t pid : pids) ::kill(pid, SIGKILL);
  }
  (void)thaw(name);
  return false;
}

Result<void> CgroupTree::remove(const std::string& name, std::chrono::milliseconds patience) const {
  for (const auto& [controller, mount] : mounts_) {
    std::string path = directory(controller, name);
    int error = 0;
    bool gone = wait_until(patience, [&] {
      error = ::rmdir(path.c_str()) == 0 ? 0 : errno;
      return error != EBUSY;
    });
    if (!gone || (error != 0 && error != ENOENT)) return fail_errno("rmdir " + path, error);
  }
  return {};
}

void CgroupTree::remove_parents() const {
  for (const auto& [controller, mount] : mounts_) {
    for (std::string path = parent_; !path.empty();) {
      if (::rmdir((mount + "/" + path).c_str()) < 0) break;
      size_t slash = path.rfind('/');
      path = slash == std::string::npos ? "" : path.substr(0, slash);
    }
  }
}

std::vector<std::string> CgroupTree::names() const {
  std::set<std::string> found;
  for (const auto& [controller, mount] : mounts_) {
    std::string parent = directory(controller, "");
    for (auto& name : list_directory(parent)) {
      struct stat st{};
      if (::stat((parent + "/" + name).c_str(), &st) == 0 && S_ISDIR(st.st_mode))
        found.insert(std::move(name));
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace glovebox::sys
