// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "programs/attack/attack.h"

// What the host's side starts in sandboxes for the attempts that it makes itself.
namespace glovebox::attack {
namespace {

void say(const std::string& text) {
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
}

// hold NAME PORT: in a neighbour, listens on the abstract name and the loopback port until it is
// killed. "ready" when it does.
int hold(const std::string& name, int port) {
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path + 1, name.data(), std::min(name.size(), sizeof local.sun_path - 1));
  const int abstract = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const auto size =
      static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + name.size());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::bind(abstract, reinterpret_cast<sockaddr*>(&local), size) != 0 ||
      ::listen(abstract, 8) != 0 ||
      ::bind(tcp, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(tcp, 8) != 0) {
    return 1;
  }
  say("ready\n");
  for (;;) ::pause();
}

// where CANARY SECRET: started with a strange working directory. 0: it is a directory of the
// sandbox; 10: the host's.
int where(const std::string& canary, const std::string& secret) {
  char path[4096] = {};
  const bool is_known = ::getcwd(path, sizeof path) != nullptr && path[0] == '/';
  std::string up;
  for (int depth = 0; depth < 24; ++depth, up += "../") {
    if (read_file(up + canary.substr(1), 4096).find(secret) != std::string::npos) return 10;
  }
  struct stat here{}, named{};
  const bool is_inside = is_known && ::stat(".", &here) == 0 && ::stat(path, &named) == 0 &&
                         here.st_dev == named.st_dev && here.st_ino == named.st_ino;
  say(std::string(path) + "\n");
  return is_inside ? 0 : 10;
}

// swap DIRECTORY TARGET SECONDS: DIRECTORY/place is now a directory, now a link to TARGET, as fast
// as it goes.
int swap(const std::string& directory, const std::string& target, int seconds) {
  const std::string place = directory + "/place", other = directory + "/other";
  ::mkdir(directory.c_str(), 0755);
  ::mkdir(place.c_str(), 0755);
  if (::symlink(target.c_str(), other.c_str()) != 0 && errno != EEXIST) return 1;
  const bool has_exchange = ::syscall(SYS_renameat2, AT_FDCWD, place.c_str(), AT_FDCWD,
                                      other.c_str(), RENAME_EXCHANGE) == 0;
  say("ready\n");
  const std::string third = directory + "/third";
  for (const time_t end = ::time(nullptr) + seconds; ::time(nullptr) < end;) {
    if (has_exchange) {
      ::syscall(SYS_renameat2, AT_FDCWD, place.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
    } else {
      ::rename(place.c_str(), third.c_str());
      ::rename(other.c_str(), place.c_str());
      ::rename(third.c_str(), other.c_str());
    }
  }
  return 0;
}

// whoami: prints ids and capabilities. whoami judge: 0 when the program file's marks gave nothing,
// 10 when they gave something.
int whoami(bool judges) {
  unsigned real = 0, effective = 0, saved = 0;
  ::getresuid(&real, &effective, &saved);
  const std::string status = read_file("/proc/self/status");
  const size_t at = status.find("CapEff:");
  const unsigned long long held =
      at == std::string::npos ? 0 : std::strtoull(status.c_str() + at + 7, nullptr, 16);
  char text[128];
  ::snprintf(text, sizeof text, "uid=%u euid=%u suid=%u capabilities=%llx\n", real, effective,
             saved, held);
  if (!judges) say(text);
  return effective != real || saved != real || (real != 0 && held != 0) ? 10 : 0;
}

}  // namespace

int run_helper(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "hold" && argc == 4) return hold(argv[2], std::atoi(argv[3]));
  if (mode == "where" && argc == 4) return where(argv[2], argv[3]);
  if (mode == "swap" && argc == 5) return swap(argv[2], argv[3], std::atoi(argv[4]));
  if (mode == "link" && argc == 4) return ::symlink(argv[2], argv[3]) == 0 ? 0 : 1;
  if (mode == "whoami") return whoami(argc == 3);
  return -1;
}

}  // namespace glovebox::attack
