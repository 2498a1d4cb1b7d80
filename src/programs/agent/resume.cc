// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/resume.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/random.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/agent/connections.h"
#include "programs/agent/directories.h"
#include "programs/agent/guest_network.h"
#include "programs/agent/loop.h"
#include "programs/agent/privilege.h"
#include "programs/agent/setup.h"

namespace glovebox::agent {
namespace {

using namespace std::chrono_literals;

constexpr char kHooks[] = "/etc/glovebox/resume.d";
constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";
constexpr char kOwnBootId[] = "/run/glovebox/boot_id";
constexpr auto kHookPatience = 10s;  // for all of them
constexpr auto kHookLook = 1ms;
constexpr size_t kMaxHooks = 64;
constexpr size_t kSampleBytes = 16;

std::string read_line(const char* path) {
  UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  char text[128];
  const ssize_t n = file ? ::read(file.get(), text, sizeof text) : -1;
  std::string line(text, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return line.substr(0, line.find('\n'));
}

// Into the kernel's pool, so that it counts at once: "credited". Where the kernel does not let us, or has no pool of its own: "mixed".
std::string add_entropy(std::string_view seed) {
  struct {
    int bits;
    int bytes;
    char data[64];
  } added{};
  added.bytes = static_cast<int>(std::min(seed.size(), sizeof added.data));
  added.bits = added.bytes * 4;  // hex digits
  std::memcpy(added.data, seed.data(), static_cast<size_t>(added.bytes));
  const Privileged privileged;
  UniqueFd device(::open("/dev/random", O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (device && ::ioctl(device.get(), RNDADDENTROPY, &added) == 0) {
    ::ioctl(device.get(), RNDRESEEDCRNG);
    return "credited";
  }
  return "mixed";
}

// The kernel's own file stays what it was at the copied start; one of ours goes over it.
void set_boot_id(const std::string& boot_id) {
  if (read_line(kBootId) == boot_id) return;
  (void)make_directories("/run/glovebox", 0755);
  UniqueFd file(::open(kOwnBootId, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0444));
  const std::string line = boot_id + "\n";
  if (!file || ::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) return;
  if (read_line(kBootId) == boot_id) return;  // it lies there since an earlier copy
  const Privileged privileged;
  [[maybe_unused]] const int mounted = ::mount(kOwnBootId, kBootId, nullptr, MS_BIND, nullptr);
}

// ---- Hooks ----

std::vector<std::string> hooks() {
  std::vector<std::string> found;
  UniqueFd directory = open_directory(AT_FDCWD, kHooks);
  if (!directory) return found;
  DIR* listing = ::fdopendir(directory.release());
  if (listing == nullptr) return found;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string path = std::string(kHooks) + "/" + entry->d_name;
    struct stat st;
    if (entry->d_name[0] == '.' || ::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || (st.st_mode & 0111) == 0) continue;
    found.push_back(path);
  }
  ::closedir(listing);
  std::sort(found.begin(), found.end());
  return found;
}

[[noreturn]] void become_hook(const char* path, char* const* environment, const Freezer& freezer) {
  freezer.enter();
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  ::syscall(SYS_close_range, 3, INT_MAX, 0);
  give_up_privilege();
  ::prctl(PR_SET_DUMPABLE, 1);
  ::umask(022);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  char* const argv[] = {const_cast<char*>(path), nullptr};
  ::execve(path, argv, environment);
  ::_exit(127);
}

// Empty when it ended well, else what was wrong with it.
std::string run_hook(const std::string& path, const std::vector<std::string>& environment, const Freezer& freezer, SteadyTime deadline) {
  std::vector<char*> envp;
  for (const auto& entry : environment) envp.push_back(const_cast<char*>(entry.c_str()));
  envp.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) become_hook(path.c_str(), envp.data(), freezer);
  if (pid < 0) return path + ": " + errno_text(errno);
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) break;
    if (ended < 0) return path + ": " + errno_text(errno);
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return path + ": it did not end in time";
    }
    const timespec pause{0, std::chrono::nanoseconds(kHookLook).count()};
    ::nanosleep(&pause, nullptr);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return path + (WIFSIGNALED(status) ? ": signal " + std::to_string(WTERMSIG(status)) : ": exit status " + std::to_string(WEXITSTATUS(status)));
}

// Each gets a seed of its own.
void run_hooks(const std::string& sandbox, const Freezer& freezer, json::object& answer) {
  const SteadyTime deadline = std::chrono::steady_clock::now() + kHookPatience;
  const auto found = hooks();
  if (found.size() > kMaxHooks) answer["error"] = std::string(kHooks) + ": holds more than 64 programs";
  for (const auto& path : found) {
    if (answer.contains("error")) break;
    const std::string failure = run_hook(path,
                                         {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                                          "GLOVEBOX_SANDBOX=" + sandbox, "GLOVEBOX_RESEED=" + hex(random_bytes(32))},
                                         freezer, deadline);
    if (!failure.empty()) answer["error"] = failure;
  }
  answer["hooks"] = found.size();
}

// Of a guest whose kernel was copied with the card it had.
void take_network(const json::object& settings, json::object& answer) {
  GuestNetwork wanted;
  wanted.address = text_field(settings, "address").value_or("");
  wanted.prefix = static_cast<int>(int_field(settings, "prefix", 0, 0, 32).value_or(0));
  wanted.gateway = text_field(settings, "gateway").value_or("");
  wanted.mac = text_field(settings, "mac").value_or("");
  const std::string failure = configure_network(wanted);
  if (!failure.empty()) answer["error"] = failure;
  const GuestNetwork present = present_network();
  answer["address"] = present.address;
  answer["mac"] = present.address.empty() ? "" : present.mac;
  end_connections_of_others(present.address);
}

std::string hostname() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

json::object resume(const json::object& hello, const json::object& identity, const Freezer& freezer) {
  json::object answer;
  answer["entropy"] = add_entropy(text_field(hello, "seed").value_or(""));
  const std::string machine_id = text_field(identity, "machine_id").value_or("");
  if (!machine_id.empty()) write_etc("machine-id", machine_id + "\n");
  const std::string boot_id = text_field(identity, "boot_id").value_or("");
  if (!boot_id.empty()) set_boot_id(boot_id);
  const json::value* network = find_field(hello, "network");
  if (network != nullptr && network->is_object()) take_network(network->get_object(), answer);
  freezer.go_on();
  run_hooks(text_field(hello, "sandbox").value_or(""), freezer, answer);
  answer["hostname"] = hostname();
  answer["machine_id"] = read_line("/etc/machine-id");
  answer["boot_id"] = read_line(kBootId);
  answer["sample"] = hex(random_bytes(kSampleBytes));
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  answer["unix_time_ns"] = now.tv_sec * 1'000'000'000 + now.tv_nsec;
  return answer;
}

}  // namespace glovebox::agent
