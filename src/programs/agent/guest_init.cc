// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/guest_init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "programs/agent/guest_network.h"
#include "programs/agent/vsock.h"
#include "sys/inside.h"

namespace glovebox::agent {
namespace {

constexpr const char* kRoot = "/root";
constexpr unsigned kAgentPort = 52;  // vsock
constexpr int kPatienceMs = 5000;    // for devices and the host
constexpr int kSpareProcesses = 1;   // the agent, as where the host counts
constexpr rlim_t kMaxOpenFiles = 1 << 20;
constexpr int kFirstHighFd = 10;     // above what the agent starts with
// Beside what root inside has: the clock and the addresses of a machine that is a copy, /proc and host name (privilege.h).
constexpr uint64_t kAgentCapabilities =
    sys::kInsideCapabilities | sys::capability_bit(CAP_SYS_ADMIN) | sys::capability_bit(CAP_SYS_TIME) | sys::capability_bit(CAP_NET_ADMIN);

[[noreturn]] void fail(const std::string& what) {
  dprintf(STDERR_FILENO, "glovebox: %s: %s\n", what.c_str(), strerror(errno));
  sync();
  reboot(RB_AUTOBOOT);  // the monitor ends the machine; the console says why
  _exit(71);
}

void must(bool ok, const std::string& what) {
  if (!ok) fail(what);
}

std::string read_text(const std::string& path) {
  std::string out;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out;
  char part[4096];
  for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) out.append(part, static_cast<size_t>(n));
  close(fd);
  return out;
}

bool write_text(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

std::vector<std::string> names_in(const char* path) {
  std::vector<std::string> out;
  DIR* directory = opendir(path);
  if (directory == nullptr) return out;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  }
  closedir(directory);
  std::sort(out.begin(), out.end());
  return out;
}

template <class Ready>
bool wait_for(Ready ready) {
  for (int waited = 0; waited < kPatienceMs; ++waited) {
    if (ready()) return true;
    usleep(1000);
  }
  return ready();
}

// ---- What the command line says ----

std::string decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (c == at) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

struct Boot {
  std::string channel = "virtio", hostname, pids;
  std::vector<std::string> volumes, networks;
};

Boot read_command_line() {
  Boot boot;
  std::string line = read_text("/proc/cmdline");
  std::replace(line.begin(), line.end(), '\n', ' ');
  for (const auto& word : split(line, ' ')) {
    const size_t equals = word.find('=');
    if (!word.starts_with("gb.") || equals == word.npos) continue;
    const std::string key = word.substr(3, equals - 3), value = word.substr(equals + 1);
    if (key == "channel") boot.channel = value;
    if (key == "hostname") boot.hostname = decoded(value);
    if (key == "pids") boot.pids = value;
    if (key == "vol") boot.volumes.push_back(value);
    if (key == "net") boot.networks.push_back(value);
  }
  return boot;
}

// ---- Devices and file systems ----

// In the order of their names, which is that of their dependencies.
void load_modules() {
  for (const auto& name : names_in("/modules")) {
    const int fd = open(("/modules/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    must(fd >= 0, "module " + name);
    must(syscall(SYS_finit_module, fd, "", 0) == 0 || errno == EEXIST, "module " + name);
    close(fd);
    unlink(("/modules/" + name).c_str());
  }
}

void mount_must(const char* source, const std::string& target, const char* type, unsigned long flags, const char* options) {
  must(mount(source, target.c_str(), type, flags, options) == 0, "mount " + target);
}

void mount_kernel_files() {
  for (const char* path : {"/dev", "/proc", "/sys", "/lower", "/private", kRoot}) mkdir(path, 0755);
  mount_must("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=755");
  mount_must("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  mount_must("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
}

// The template below, the private disk above.
void mount_root() {
  must(wait_for([] { return access("/dev/vda", F_OK) == 0 && access("/dev/vdb", F_OK) == 0; }), "disks");
  mount_must("/dev/vda", "/lower", "erofs", MS_RDONLY | MS_NODEV, nullptr);
  mount_must("/dev/vdb", "/private", "ext4", MS_NODEV | MS_NOATIME, "discard");
  mkdir("/private/u", 0755);
  mkdir("/private/w", 0700);
  mount_must("overlay", kRoot, "overlay", MS_NODEV, "lowerdir=/lower,upperdir=/private/u,workdir=/private/w");
}

bool make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0755) != 0 && errno != EEXIST) return false;
    if (slash == path.npos) return true;
  }
}

// "vdc:/data:ro", inside the sandbox's root.
void mount_volume(const std::string& text) {
  const auto parts = split(text, ':');
  must(parts.size() == 3, "volume " + text);
  const std::string device = "/dev/" + parts[0], target = kRoot + decoded(parts[1]);
  must(wait_for([&] { return access(device.c_str(), F_OK) == 0; }), device);
  must(make_directories(target), target);
  const bool read_only = parts[2] == "ro";
  mount_must(device.c_str(), target, "ext4", MS_NODEV | MS_NOSUID | MS_NOATIME | (read_only ? MS_RDONLY : 0), read_only ? "noload" : "discard");
}

void make_devices() {
  struct Node {
    const char* name;
    unsigned minor, major;
  };
  const std::string dev = std::string(kRoot) + "/dev";
  mkdir(dev.c_str(), 0755);
  mount_must("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k,nr_inodes=64");
  for (const Node& node : {Node{"null", 3, 1}, Node{"zero", 5, 1}, Node{"full", 7, 1}, Node{"random", 8, 1}, Node{"urandom", 9, 1}, Node{"tty", 0, 5}}) {
    const std::string path = dev + "/" + node.name;
    must(mknod(path.c_str(), S_IFCHR | 0666, makedev(node.major, node.minor)) == 0 && chmod(path.c_str(), 0666) == 0, path);
  }
  for (const auto& [name, target] : {std::pair{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"}}) {
    must(symlink(target, (dev + "/" + name).c_str()) == 0, name);
  }
  mkdir((dev + "/pts").c_str(), 0755);
  mkdir((dev + "/shm").c_str(), 01777);
  mount_must("devpts", dev + "/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5");
  mount_must("tmpfs", dev + "/shm", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=1777,size=50%");
}

// Without this a full memory is not out of memory for minutes: the kernel drops and reads again the pages of running programs. It
// then kills as soon as what was used within the last second does not fit. Absent from some kernels.
void prefer_killing_to_thrashing() {
  write_text("/sys/kernel/mm/lru_gen/enabled", "y");
  write_text("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000");
}

struct Group {
  int procs = -1, freeze = -1;  // kGroupFds, not yet in their places
};

int open_above(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, kFirstHighFd);
  must(moved >= 0, path);
  close(fd);
  return moved;
}

// Everything of the sandbox is in one group, so that a flood of processes meets its limit and not the kernel's end; all but the agent
// in a group below, which can stand still.
Group make_groups(const std::string& pids) {
  const std::string tree = "/cgroup";
  mkdir(tree.c_str(), 0755);
  mount_must("cgroup2", tree, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
  must(write_text(tree + "/cgroup.subtree_control", "+pids"), "pids controller");
  must(mkdir((tree + "/sandbox").c_str(), 0755) == 0, "cgroup");
  if (const long limit = atol(pids.c_str()); limit > 0) {
    must(write_text(tree + "/sandbox/pids.max", std::to_string(limit + kSpareProcesses)), "pids.max");
  }
  must(write_text(tree + "/sandbox/cgroup.procs", "0"), "cgroup.procs");
  const std::string inside = tree + "/sandbox/inside";
  must(mkdir(inside.c_str(), 0755) == 0, "cgroup");
  return {open_above(inside + "/cgroup.procs"), open_above(inside + "/cgroup.freeze")};
}

// ---- Network ----

// "10.0.0.2/30,10.0.0.1,<mac>": the card has that address of its own already.
GuestNetwork parse_network(const std::string& text) {
  const auto parts = split(decoded(text), ',');
  const auto cidr = split(parts[0], '/');
  must(parts.size() >= 2 && cidr.size() == 2, "network " + text);
  return {cidr[0], atoi(cidr[1].c_str()), parts[1], ""};
}

void start_network(const std::vector<std::string>& networks) {
  must(set_interface_up("lo", true), "loopback");
  if (!networks.empty()) must(wait_for([] { return access("/sys/class/net/eth0", F_OK) == 0; }), "eth0");
  const std::string failed = configure_network(networks.empty() ? GuestNetwork() : parse_network(networks[0]));
  must(failed.empty(), failed);
}

// ---- Channel ----

int open_virtio_port() {
  std::string port;
  must(wait_for([&] {
         for (const auto& name : names_in("/sys/class/virtio-ports")) {
           if (read_text("/sys/class/virtio-ports/" + name + "/name") == "glovebox.agent\n") port = "/dev/" + name;
         }
         return !port.empty() && access(port.c_str(), F_OK) == 0;
       }),
       "channel");
  const int fd = open(port.c_str(), O_RDWR | O_CLOEXEC);
  must(fd >= 0, port);
  return fd;
}

int connect_to_host() {
  const int fd = connect_vsock(VMADDR_CID_HOST, kAgentPort, kPatienceMs);
  must(fd >= 0, "channel");
  return fd;
}

// ---- What is kept from those inside: its own kernel is no reason to hand it to them ----

// As on the other runtimes: a link has no IPv6, any user may listen on any port and ping.
void set_network_switches(bool has_link) {
  write_text("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  write_text("/proc/sys/net/ipv4/ping_group_range", "0 65535");
  // The card of a machine without a link may get one in a copy; its loopback keeps ::1.
  for (const char* name : {"default", "eth0", "unplugged"}) write_text(std::string("/proc/sys/net/ipv6/conf/") + name + "/disable_ipv6", "1");
  if (has_link) write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
}

void mask_proc() {
  for (const char* path : sys::kMaskedFiles) must(mount("/dev/null", path, nullptr, MS_BIND, nullptr) == 0 || errno == ENOENT, path);
  mount_must("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, nullptr);  // an empty directory, for a moment
  for (const char* path : sys::kMaskedDirectories) must(mount("/dev/shm", path, nullptr, MS_BIND, nullptr) == 0 || errno == ENOENT, path);
  must(umount2("/dev/shm", 0) == 0, "masks");
  mount_must("/proc/sys", "/proc/sys", nullptr, MS_BIND, nullptr);
  mount_must(nullptr, "/proc/sys", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr);
}

// At least what executions may get: nobody can raise them later. The kernel's own default depends on its memory.
void limit_itself() {
  const rlimit processes{RLIM_INFINITY, RLIM_INFINITY};
  must(setrlimit(RLIMIT_NPROC, &processes) == 0, "limits");
  const rlimit files{kMaxOpenFiles, kMaxOpenFiles}, no_core{0, 0}, locked{64 << 20, 64 << 20};
  must(setrlimit(RLIMIT_NOFILE, &files) == 0 && setrlimit(RLIMIT_CORE, &no_core) == 0 && setrlimit(RLIMIT_MEMLOCK, &locked) == 0, "limits");
}

void drop_capabilities() {
  for (int capability = 0; capability < 64; ++capability) {
    if ((kAgentCapabilities & sys::capability_bit(capability)) != 0) continue;
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      must(errno == EINVAL, "capabilities");
      break;  // past the last one this kernel knows
    }
  }
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].permitted = data[0].effective = static_cast<uint32_t>(kAgentCapabilities);
  data[1].permitted = data[1].effective = static_cast<uint32_t>(kAgentCapabilities >> 32);
  must(syscall(SYS_capset, &header, data) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "capabilities");
}

void enter_root() {
  for (const char* path : {"proc", "sys"}) {
    const std::string target = std::string(kRoot) + "/" + path;
    mkdir(target.c_str(), 0555);
    must(mount((std::string("/") + path).c_str(), target.c_str(), nullptr, MS_MOVE, nullptr) == 0, target);
  }
  const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  must(mount(nullptr, (std::string(kRoot) + "/sys").c_str(), nullptr, flags, nullptr) == 0, "sys read-only");
  umount2("/dev", MNT_DETACH);
  must(chdir(kRoot) == 0 && mount(".", "/", nullptr, MS_MOVE, nullptr) == 0 && chroot(".") == 0 && chdir("/") == 0, "root");
}

// From a sealed copy in memory, which nobody can write to, and without the kernel's environment.
[[noreturn]] void go_on_as_agent() {
  const int program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int copy = static_cast<int>(syscall(SYS_memfd_create, "glovebox-agent", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat st = {};
  must(program >= 0 && copy >= 0 && fstat(program, &st) == 0, "agent");
  for (off_t at = 0; at < st.st_size;) must(sendfile(copy, program, &at, static_cast<size_t>(st.st_size - at)) > 0, "agent");
  close(program);
  must(fcntl(copy, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0, "agent");
  static const char* const argv[] = {"glovebox-agent", "--guest", nullptr};
  static const char* const environment[] = {nullptr};
  syscall(SYS_execveat, copy, "", argv, environment, AT_EMPTY_PATH);
  fail("agent");
}

}  // namespace

void become_guest() {
  mount_kernel_files();
  unlink("/init");  // its memory is given back when the copy runs
  const int console = open("/dev/console", O_RDWR | O_NOCTTY);
  for (int fd = 0; fd < 3 && console >= 0; ++fd) dup2(console, fd);
  if (console > 2) close(console);
  load_modules();
  const Boot boot = read_command_line();
  mount_root();
  for (const auto& volume : boot.volumes) mount_volume(volume);
  make_devices();
  start_network(boot.networks);
  if (!boot.hostname.empty()) must(sethostname(boot.hostname.data(), boot.hostname.size()) == 0, "hostname");
  set_network_switches(!boot.networks.empty());
  prefer_killing_to_thrashing();
  const Group group = make_groups(boot.pids);
  const int channel = boot.channel == "vsock" ? connect_to_host() : open_virtio_port();
  enter_root();
  mask_proc();
  limit_itself();
  drop_capabilities();
  must(dup2(channel, STDIN_FILENO) >= 0 && dup2(channel, STDOUT_FILENO) >= 0, "channel");
  close(channel);
  must(dup2(group.procs, kGroupFds[0]) >= 0 && dup2(group.freeze, kGroupFds[1]) >= 0, "cgroup");
  go_on_as_agent();
}

}  // namespace glovebox::agent
