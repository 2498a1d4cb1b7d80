// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace glovebox::bench {
namespace {

namespace fs = std::filesystem;

std::string read_proc(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Files such as /proc/meminfo have lines "Name:   123 kB".
double field_mib(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == name + ":" && file >> kib) return kib / 1024;
  }
  return 0;
}

std::string of(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

void add_children(pid_t pid, std::vector<pid_t>* found) {
  std::error_code ec;
  for (const auto& task : fs::directory_iterator(of(pid, "task"), ec)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) {
      found->push_back(child);
      add_children(child, found);
    }
  }
}

}  // namespace

double available_mib() {
  return field_mib("/proc/meminfo", "MemAvailable");
}

double resident_mib(pid_t pid) {
  return field_mib(of(pid, "status"), "VmRSS");
}

double proportional_mib(const std::vector<pid_t>& pids) {
  double sum = 0;
  for (const pid_t pid : pids) sum += field_mib(of(pid, "smaps_rollup"), "Pss");
  return sum;
}

std::vector<pid_t> processes_in_groups(const std::vector<std::string>& ids) {
  std::vector<pid_t> found;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator("/proc", ec)) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid) continue;
    const std::string groups = read_proc(entry.path() / "cgroup");
    const auto names = [&](const std::string& id) { return groups.find("/" + id) != groups.npos; };
    if (std::any_of(ids.begin(), ids.end(), names)) found.push_back(static_cast<pid_t>(*pid));
  }
  return found;
}

std::vector<pid_t> descendants() {
  std::vector<pid_t> found;
  add_children(::getpid(), &found);
  return found;
}

}  // namespace glovebox::bench
