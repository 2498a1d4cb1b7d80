// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/oom.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace glovebox::agent {
namespace {

constexpr std::string_view kKey = "\noom_kill ";
constexpr size_t kMaxText = 64 * 1024;
constexpr std::string_view kFirstPidNamespace =
    "pid:[4026531836]";  // the kernel's own; its number is part of the ABI

}  // namespace

bool owns_kernel() {
  char target[64];
  const ssize_t n = ::getpid() == 1 ? ::readlink("/proc/self/ns/pid", target, sizeof target) : -1;
  return n > 0 && std::string_view(target, static_cast<size_t>(n)) == kFirstPidNamespace;
}

uint64_t oom_kills(const std::string& vmstat_path) {
  UniqueFd file(::open(vmstat_path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text = "\n";
  char part[4096];
  while (file && text.size() < kMaxText) {
    const ssize_t n = ::read(file.get(), part, sizeof part);
    if (n <= 0) break;
    text.append(part, static_cast<size_t>(n));
  }
  const size_t at = text.find(kKey);
  return at == text.npos ? 0 : std::strtoull(text.c_str() + at + kKey.size(), nullptr, 10);
}

OomWatch::OomWatch(bool is_active, std::string vmstat_path)
    : is_active_(is_active), vmstat_path_(std::move(vmstat_path)) {
  if (is_active_) seen_ = oom_kills(vmstat_path_);
}

bool OomWatch::has_killed() {
  if (!is_active_) return false;
  const uint64_t now = oom_kills(vmstat_path_);
  return std::exchange(seen_, now) < now;
}

}  // namespace glovebox::agent
