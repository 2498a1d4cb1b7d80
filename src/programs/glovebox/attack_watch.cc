// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/attack_watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/random.h"
#include "base/text.h"
#include "image/digest.h"
#include "programs/glovebox/loop.h"

namespace glovebox::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxHostSockets = 64;
constexpr size_t kShortestName =
    5;  // a shorter host name is too common a word to be looked for in every file

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return file ? std::string{std::istreambuf_iterator<char>(file), {}} : std::string();
}

std::string without_end(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string link_of(const std::string& path) {
  std::error_code ec;
  return fs::read_symlink(path, ec).string();
}

std::string digest_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_text(errno);
  return image::sha256_of_fd(file.get(), path).value_or("unreadable");
}

std::string find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& directory :
       split(path == nullptr ? "/usr/bin:/usr/local/bin" : path, ':')) {
    const std::string candidate = directory + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string name_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  return text;
}

int port_of(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size);
  return ntohs(own.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&own)->sin_port
                                        : reinterpret_cast<sockaddr_in6*>(&own)->sin6_port);
}

// A listener on this address and any free port; invalid where the address takes none.
UniqueFd listen_on(const sockaddr* address, socklen_t size) {
  UniqueFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || ::bind(fd.get(), address, size) != 0 || ::listen(fd.get(), 64) != 0) return UniqueFd();
  return fd;
}

// Names from the table of the host's Unix sockets, those in the file system and the abstract ones.
std::vector<std::string> unix_sockets_of_host() {
  std::vector<std::string> names;
  for (const std::string& line : split(text_of("/proc/net/unix"), '\n')) {
    const size_t at = line.find_first_of("/@");
    if (at == std::string::npos || names.size() >= kMaxHostSockets) continue;
    names.push_back(line.substr(at));
  }
  return names;
}

}  // namespace

WatchPlan plan_for_host(const std::string& data_dir) {
  WatchPlan plan;
  plan.programs = {"/proc/self/exe", find_in_path("runsc")};
  std::error_code ec;
  for (const auto& entry : fs::recursive_directory_iterator(data_dir + "/agent", ec)) {
    if (entry.is_regular_file()) plan.programs.push_back(entry.path());
  }
  for (const char* name :
       {"kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/poweroff_cmd",
        "kernel/randomize_va_space", "kernel/sysrq", "kernel/shmmax", "kernel/msgmax", "kernel/sem",
        "kernel/domainname", "kernel/hostname", "vm/overcommit_memory", "vm/max_map_count",
        "fs/file-max", "net/ipv4/ip_forward", "net/core/somaxconn", "user/max_user_namespaces"}) {
    plan.settings.push_back(std::string("/proc/sys/") + name);
  }
  for (const char* path : {"/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
                           "/etc/passwd", "/etc/shadow", "/etc/hosts"}) {
    plan.settings.emplace_back(path);
  }
  return plan;
}

Result<std::unique_ptr<HostWatch>> HostWatch::start(WatchPlan plan) {
  std::unique_ptr<HostWatch> watch(new HostWatch(std::move(plan)));
  utsname name{};
  ::uname(&name);
  watch->host_name_ = name.nodename;
  watch->marker_ = "glovebox-canary-process-" + random_name(12);
  GB_TRYV(watch->plant());
  GB_TRYV(watch->listen());
  GB_TRYV(watch->start_process());
  for (const auto& path : watch->plan_.programs) {
    if (!path.empty()) watch->programs_[path] = digest_of(path);
  }
  for (const auto& path : watch->plan_.settings) watch->settings_[path] = text_of(path);
  return watch;
}

HostWatch::~HostWatch() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  std::error_code ec;
  if (!directory_.empty()) fs::remove_all(directory_, ec);
}

Result<void> HostWatch::plant() {
  const char* parent = std::getenv("TMPDIR");
  directory_ = (!plan_.canary_parent.empty() ? plan_.canary_parent
                : parent == nullptr          ? "/tmp"
                                             : parent) +
               "/glovebox-canary-XXXXXX";
  if (::mkdtemp(directory_.data()) == nullptr) return fail_errno(directory_);
  canary_path_ = directory_ + "/canary.txt";
  secret_ = "canary-" + hex(random_bytes(16));
  // Open to everybody on the host: only the sandbox's walls keep it.
  const UniqueFd file(::open(canary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file || ::fchmod(file.get(), 0666) != 0 || ::chmod(directory_.c_str(), 0777) != 0)
    return fail_errno(canary_path_);
  return write_fully(file.get(), secret_ + "\n");
}

Result<void> HostWatch::listen() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return fail_errno("getifaddrs");
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr ||
        (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
      continue;
    UniqueFd fd =
        listen_on(one->ifa_addr,
                  one->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!fd) continue;
    addresses_.push_back(name_of(one->ifa_addr) + ":" + std::to_string(port_of(fd.get())));
    listeners_.push_back(std::move(fd));
  }
  ::freeifaddrs(all);
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  const std::string name = "glovebox-canary-" + random_name(12);
  std::memcpy(local.sun_path + 1, name.data(), name.size());
  const auto size =
      static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + name.size());
  UniqueFd fd = listen_on(reinterpret_cast<sockaddr*>(&local), size);
  if (!fd) return fail_errno("an abstract socket");
  listeners_.push_back(std::move(fd));
  socket_names_ = unix_sockets_of_host();
  std::erase(socket_names_, "@" + name);
  socket_names_.push_back("@" + name);
  addresses_.push_back("@" + name);
  return {};
}

// Ends at the first signal that reaches it.
Result<void> HostWatch::start_process() {
  process_ = ::fork();
  if (process_ < 0) return fail_errno("fork");
  if (process_ > 0) return {};
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const char* argv[] = {marker_.c_str(), "3600", nullptr};
  ::execv("/bin/sleep", const_cast<char**>(argv));
  ::_exit(127);
}

std::string HostWatch::facts() const {
  utsname name{};
  ::uname(&name);
  std::string out = std::string("kernel=") + name.release + " " + name.version +
                    "\npidns=" + link_of("/proc/self/ns/pid") + "\n";
  out += "cmdline=" + without_end(text_of("/proc/cmdline")) + "\nhostname=" + host_name_ + "\n";
  out += "canary=" + canary_path_ + "\nsecret=" + secret_ + "\nmarker=" + marker_ + "\n";
  for (const std::string& word : {secret_, canary_path_, marker_}) out += "word=" + word + "\n";
  if (host_name_.size() >= kShortestName && host_name_ != "localhost")
    out += "word=" + host_name_ + "\n";
  for (const pid_t pid : {process_, ::getpid(), ::getppid()})
    out += "pid=" + std::to_string(pid) + "\n";
  for (const auto& where : addresses_) out += where[0] == '@' ? "" : "tcp=" + where + "\n";
  for (const auto& socket : socket_names_) out += "unix=" + socket + "\n";
  return out;
}

std::vector<Finding> HostWatch::look() {
  return {look_at_canary(),
          look_at_process(),
          look_at_listeners(),
          look_at_files("host_programs", programs_),
          look_at_files("host_settings", settings_),
          look_at_mounts(),
          look_at_name()};
}

Finding HostWatch::look_at_canary() const {
  if (text_of(canary_path_) != secret_ + "\n")
    return {"host_canary", false, canary_path_ + " was changed"};
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(directory_, ec)) {
    if (entry.path() != canary_path_)
      return {"host_canary", false, entry.path().string() + " was made"};
  }
  return {"host_canary", true, "the host's canary file is as it was, and nothing lies beside it"};
}

Finding HostWatch::look_at_process() const {
  siginfo_t ended{};
  if (::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      ended.si_pid == process_) {
    return {"host_process", false,
            "the host's canary process was ended by signal " + std::to_string(ended.si_status)};
  }
  return {"host_process", true, "the host's canary process got no signal"};
}

Finding HostWatch::look_at_listeners() {
  for (size_t at = 0; at < listeners_.size(); ++at) {
    const UniqueFd connection(::accept4(listeners_[at].get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) reached_.push_back(addresses_[at]);
  }
  if (!reached_.empty())
    return {"host_listeners", false, "a connection came to " + reached_.front()};
  return {
      "host_listeners", true,
      std::to_string(listeners_.size()) + " listeners on the host's addresses saw no connection"};
}

Finding HostWatch::look_at_files(const std::string& what,
                                 const std::map<std::string, std::string>& before) const {
  const bool are_programs = &before == &programs_;
  for (const auto& [path, content] : before) {
    if ((are_programs ? digest_of(path) : text_of(path)) != content)
      return {what, false, path + " was changed"};
  }
  return {what, true, std::to_string(before.size()) + " files are as they were"};
}

Finding HostWatch::look_at_mounts() const {
  const std::string table = text_of(plan_.mount_table);
  if (table.empty()) return {"host_mounts", false, plan_.mount_table + " cannot be read"};
  if (table.find("glovebox-attack-mount") != std::string::npos)
    return {"host_mounts", false, "a mount of the attacker's is in the host's table"};
  return {"host_mounts", true, "no mount of the attacker's in the host's table"};
}

Finding HostWatch::look_at_name() const {
  utsname name{};
  ::uname(&name);
  if (host_name_ != name.nodename)
    return {"host_name_kept", false, "the host is now called " + std::string(name.nodename)};
  return {"host_name_kept", true, "the host's name is as it was"};
}

}  // namespace glovebox::cli
