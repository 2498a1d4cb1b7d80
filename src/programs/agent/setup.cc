// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/setup.h"

#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/privilege.h"

namespace glovebox::agent {
namespace {

constexpr int64_t kClockToleranceNs = 500'000'000;

void create_etc_if_missing(const char* name) {
  UniqueFd etc = open_directory(AT_FDCWD, "/etc");
  if (!etc) return;
  UniqueFd(::openat(etc.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
}

void loopback_up() {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  if (!fd || ::ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0 || (request.ifr_flags & IFF_UP)) return;
  request.ifr_flags |= IFF_UP;
  ::ioctl(fd.get(), SIOCSIFFLAGS, &request);
}

void mix_entropy(const std::string& seed) {
  UniqueFd fd(::open("/dev/urandom", O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat st;
  if (!fd || ::fstat(fd.get(), &st) != 0 || !S_ISCHR(st.st_mode)) return;
  [[maybe_unused]] const ssize_t n = ::write(fd.get(), seed.data(), seed.size());
}

// Makes `path` a directory of `uid` if nothing is there. Only the last component may be missing.
void make_directory(const char* path, mode_t mode, uid_t uid, gid_t gid) {
  if (::mkdir(path, mode) != 0) return;
  UniqueFd dir = open_directory(AT_FDCWD, path);
  if (!dir) return;
  if (::fchown(dir.get(), uid, gid) == 0) ::fchmod(dir.get(), mode);
}

void make_writable_by_all(const char* path) {
  ::mkdir(path, 01777);
  UniqueFd dir = open_directory(AT_FDCWD, path);
  if (dir) ::fchmod(dir.get(), 01777);
}

}  // namespace

void set_clock(int64_t unix_time_ns, int64_t tolerance_ns) {
  timespec now;
  if (unix_time_ns <= 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return;
  const int64_t difference = unix_time_ns - (now.tv_sec * 1'000'000'000 + now.tv_nsec);
  if (std::llabs(difference) < tolerance_ns) return;
  const timespec wanted{unix_time_ns / 1'000'000'000, unix_time_ns % 1'000'000'000};
  ::clock_settime(CLOCK_REALTIME, &wanted);
}

void write_etc(const char* name, std::string_view text) {
  UniqueFd etc = open_directory(AT_FDCWD, "/etc");
  if (!etc) return;
  const std::string temporary = ".glovebox-" + random_name(10);
  UniqueFd file(::openat(etc.get(), temporary.c_str(),
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return;
  const bool written =
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (written && ::renameat(etc.get(), temporary.c_str(), etc.get(), name) == 0) return;
  ::unlinkat(etc.get(), temporary.c_str(), 0);
  UniqueFd in_place(::openat(etc.get(), name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat st;
  if (!in_place || ::fstat(in_place.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  if (::ftruncate(in_place.get(), 0) != 0) return;
  [[maybe_unused]] const ssize_t n = ::write(in_place.get(), text.data(), text.size());
}

void Setup::set_names(const std::string& hostname) {
  const Privileged privileged;
  [[maybe_unused]] const int set = ::sethostname(hostname.data(), hostname.size());
  write_etc("hostname", hostname + "\n");
  write_etc("hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " +
                         hostname + "\n");
}

void Setup::make_directories(const std::string& default_user) {
  make_writable_by_all("/tmp");
  auto user = users_.find(default_user);
  if (!user) return;
  make_directory("/workspace", 0755, user->uid, user->gid);
  UniqueFd workspace = open_directory(AT_FDCWD, "/workspace");
  if (workspace) {
    [[maybe_unused]] const int owned = ::fchown(workspace.get(), user->uid, user->gid);
  }
  ::mkdir("/home", 0755);
  make_directory(user->home.c_str(), 0755, user->uid, user->gid);
}

void Setup::apply(const json::object& hello, const std::string& default_user) {
  const auto time = int_field(hello, "unix_time_ns", 0, 0, INT64_MAX);
  const bool is_copy = find_field(hello, "resumed") != nullptr;
  if (time) set_clock(*time, is_copy ? kCopyToleranceNs : kClockToleranceNs);
  const auto seed = text_field(hello, "seed");
  if (seed && !seed->empty()) mix_entropy(*seed);
  const auto hostname = text_field(hello, "hostname");
  if (hostname && !hostname->empty() && *hostname != hostname_) {
    set_names(*hostname);
    hostname_ = *hostname;
  }
  const auto sandbox = text_field(hello, "sandbox");
  if (sandbox && !sandbox->empty() && *sandbox != sandbox_) {
    // A copy of a sandbox is another machine, and is told which (resume.h); one that goes on is what it was.
    if (!is_copy) write_etc("machine-id", hex(random_bytes(16)) + "\n");
    sandbox_ = *sandbox;
  }
  if (!std::exchange(done_, true)) {
    create_etc_if_missing("resolv.conf");
    loopback_up();
  }
  // Whose directories they are is known when the sandbox has an owner.
  if (bool_field(hello, "pooled", false).value_or(false) || std::exchange(directories_made_, true)) return;
  make_directories(default_user);
}

}  // namespace glovebox::agent
