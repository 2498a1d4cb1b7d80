// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "programs/attack/attack.h"

// B05: device nodes, found or made.
namespace glovebox::attack {
namespace {

struct Device {
  const char* name;
  mode_t kind;
  unsigned major, minor;
};
constexpr Device kDevices[] = {{"mem", S_IFCHR, 1, 1},       {"port", S_IFCHR, 1, 4},
                               {"kmsg", S_IFCHR, 1, 11},     {"kvm", S_IFCHR, 10, 232},
                               {"fuse", S_IFCHR, 10, 229},   {"tun", S_IFCHR, 10, 200},
                               {"vsock", S_IFCHR, 10, 121},  {"loop-control", S_IFCHR, 10, 237},
                               {"loop0", S_IFBLK, 7, 0},     {"loop1", S_IFBLK, 7, 1},
                               {"sda", S_IFBLK, 8, 0},       {"vda", S_IFBLK, 254, 0},
                               {"vda-old", S_IFBLK, 253, 0}, {"nvme0n1", S_IFBLK, 259, 0},
                               {"mapper", S_IFCHR, 10, 236}};

// gVisor has a tun and a fuse of its own: its network stack's and its file systems'. The others it
// could only have from the host.
bool is_of_own_kernel(const Facts& facts, unsigned major, unsigned minor) {
  return is_own_kernel(facts) && major == 10 && (minor == 229 || minor == 200);
}

// A node is only a name. What counts is whether it opens.
Outcome make_nodes(const Facts& facts) {
  Tally tally;
  const std::string own = work_directory();
  for (const std::string& directory : {own, std::string("/dev"), std::string("/dev/shm")}) {
    if (directory.empty()) continue;
    for (const auto& device : kDevices) {
      const std::string path = directory + "/glovebox-attack-node";
      if (::mknod(path.c_str(), device.kind | 0666, makedev(device.major, device.minor)) != 0) {
        tally.refuse(errno);
        continue;
      }
      const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
      const std::string name = std::string(device.name) + " in " + directory;
      // No such device (ENXIO, ENODEV) from a kernel that has none, or EACCES from a file system
      // without devices.
      fd >= 0 ? tally.succeed("made and opened " + name +
                                  (is_own_kernel(facts) ? ", of the sandbox's own kernel" : ""),
                              is_of_own_kernel(facts, device.major, device.minor))
              : tally.succeed(
                    "made " + std::string(device.name) + ", but opening it is " + error_name(errno),
                    true);
      if (fd >= 0) ::close(fd);
      ::unlink(path.c_str());
    }
  }
  ::rmdir(own.c_str());
  return tally.outcome("no place for a file");
}

Outcome open_nodes(const Facts& facts) {
  Tally tally;
  for (const char* path : {"/dev/mem",
                           "/dev/kmem",
                           "/dev/port",
                           "/dev/kmsg",
                           "/dev/kvm",
                           "/dev/fuse",
                           "/dev/vsock",
                           "/dev/vhost-vsock",
                           "/dev/vhost-net",
                           "/dev/loop-control",
                           "/dev/loop0",
                           "/dev/loop1",
                           "/dev/sda",
                           "/dev/vda",
                           "/dev/nvme0n1",
                           "/dev/net/tun",
                           "/dev/mapper/control",
                           "/dev/userfaultfd",
                           "/dev/cpu/0/msr",
                           "/dev/hwrng",
                           "/dev/rtc0",
                           "/dev/uinput",
                           "/dev/console",
                           "/proc/kcore",
                           "/proc/kmsg"}) {
    const int fd = ::open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const int readable = fd >= 0 ? fd : ::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (readable < 0) {
      tally.refuse(errno);
      continue;
    }
    struct stat status{};
    ::fstat(readable, &status);
    const bool is_null = S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
    char byte = 0;
    const bool is_empty_file = S_ISREG(status.st_mode) && ::read(readable, &byte, 1) == 0;
    const bool is_own = S_ISCHR(status.st_mode) &&
                        is_of_own_kernel(facts, major(status.st_rdev), minor(status.st_rdev));
    tally.succeed(std::string(path) + (is_null         ? " is the null device"
                                       : is_empty_file ? " is an empty file"
                                       : is_own        ? " is one of the sandbox's own kernel"
                                                       : " opens"),
                  is_null || is_empty_file || is_own);
    ::close(readable);
  }
  return tally.outcome("");
}

// Whatever else stands in /dev must be one of the harmless ones.
Outcome list_nodes(const Facts& facts) {
  Tally tally;
  int seen = 0;
  for (const char* directory : {"/dev/", "/dev/net/"}) {
    for (const auto& name : list_directory(directory)) {
      struct stat status{};
      if (::lstat((directory + name).c_str(), &status) != 0 ||
          (!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode)))
        continue;
      ++seen;
      const unsigned group = major(status.st_rdev), number = minor(status.st_rdev);
      const bool is_known =
          S_ISCHR(status.st_mode) && ((group == 1 && (number == 3 || number == 5 || number == 7 ||
                                                      number == 8 || number == 9)) ||
                                      (group == 5 && (number == 0 || number == 2)) ||
                                      group == 136 || is_of_own_kernel(facts, group, number));
      if (is_known) continue;
      const int fd =
          ::open((directory + name).c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
      if (fd < 0) tally.refuse(errno);
      if (fd >= 0)
        tally.succeed(directory + name + " (" + std::to_string(group) + ":" +
                          std::to_string(number) + ") opens",
                      false);
      if (fd >= 0) ::close(fd);
    }
  }
  return tally.outcome(
      std::to_string(seen) +
      " nodes, all of them null, zero, full, random, terminals or of the sandbox's own kernel");
}

}  // namespace

std::vector<Attempt> device_attempts() {
  return {{"B05", "make_nodes", make_nodes},
          {"B05", "open_nodes", open_nodes},
          {"B05", "list_nodes", list_nodes}};
}

}  // namespace glovebox::attack
