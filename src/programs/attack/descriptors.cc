// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/attack/attack.h"

// B01, B02: descriptors and program files that a helper of the host may have left within reach.
namespace glovebox::attack {
namespace {

constexpr int kFirst = 3, kLast = 64;

bool is_same_file(const std::string& one, const std::string& other) {
  struct stat a{}, b{};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// A link of /proc/PID/fd that names a file which the sandbox can reach by that very name is the
// sandbox's own.
bool is_own(const std::string& link, const std::string& target) {
  if (target.rfind("(unreachable)", 0) == 0) return false;
  return target.empty() || target[0] != '/' || is_same_file(link, target);
}

// Any further descriptor is a finding for a program that was started with three.
Outcome list_own_descriptors(const Facts& facts) {
  std::string seen;
  for (const int fd : facts.descriptors_at_start) {
    if (fd > 2)
      return got_through("descriptor " + std::to_string(fd) + " was open at the start: " +
                         read_link("/proc/self/fd/" + std::to_string(fd)));
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const std::string target = read_link(link);
    struct stat status{};
    ::fstat(fd, &status);
    if (S_ISDIR(status.st_mode))
      return got_through("descriptor " + std::to_string(fd) + " is a directory: " + target);
    if (!is_own(link, target))
      return got_through("descriptor " + std::to_string(fd) +
                         " is no file of the sandbox: " + target);
    seen += (seen.empty() ? "" : " ") + std::to_string(fd) + "=" + target;
  }
  return refused("open are only " + printable(seen, 300));
}

bool reaches_canary(const Facts& facts, int directory) {
  if (facts.canary_path.empty()) return false;
  std::string up;
  for (int depth = 0; depth < 24; ++depth, up += "../") {
    const int fd =
        ::openat(directory, (up + facts.canary_path.substr(1)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    char text[512] = {};
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (n > 0 &&
        std::string(text, static_cast<size_t>(n)).find(facts.canary_secret) != std::string::npos)
      return true;
  }
  return false;
}

Outcome list_init_descriptors(const Facts& facts) {
  Tally tally;
  int seen = 0;
  for (int fd = 0; fd < 256; ++fd) {
    const std::string link = "/proc/1/fd/" + std::to_string(fd);
    const std::string target = read_link(link);
    if (target.empty()) {
      tally.refuse(errno);
      continue;
    }
    ++seen;
    std::string word;
    if (contains_any(target, facts.words, &word))
      tally.succeed("descriptor " + std::to_string(fd) + " names " + word, false);
    if (!is_own(link, target))
      tally.succeed("descriptor " + std::to_string(fd) + " is no file of the sandbox: " + target,
                    false);
    const int directory = ::open(link.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 && reaches_canary(facts, directory))
      tally.succeed("descriptor " + std::to_string(fd) + " leads to the canary", false);
    if (directory >= 0) ::close(directory);
  }
  const Outcome outcome = tally.outcome("");
  if (outcome.verdict != Verdict::kRefused || seen == 0) return outcome;
  return refused(std::to_string(seen) +
                 " descriptors of process 1 are seen, none names or leads to a file of the host");
}

// CVE-2024-21626: a working directory that is a descriptor of the runtime's, outside the new root.
Outcome work_in_descriptors(const Facts& facts) {
  Tally tally;
  for (const char* owner : {"self", "1"}) {
    for (int fd = kFirst; fd <= kLast; ++fd) {
      const std::string path = std::string("/proc/") + owner + "/fd/" + std::to_string(fd);
      if (::chdir(path.c_str()) != 0) {
        tally.refuse(errno);
        continue;
      }
      char where[4096] = {};
      const bool is_inside =
          ::getcwd(where, sizeof where) != nullptr && where[0] == '/' && is_same_file(".", where);
      tally.succeed(path + " is " + (where[0] == 0 ? "nowhere" : where),
                    is_inside && !reaches_canary(facts, AT_FDCWD));
    }
  }
  return tally.outcome("");
}

// ETXTBSY would mean that only its being in use protects the file: at another moment the write
// succeeds.
Outcome write_program_files(const Facts& facts) {
  Tally tally;
  const std::string own = read_link("/proc/self/exe");
  for (const int pid : process_ids()) {
    const std::string exe = "/proc/" + std::to_string(pid) + "/exe";
    const std::string target = read_link(exe);
    if (target == own) continue;
    for (const int flags : {O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC}) {
      const int fd = ::open(exe.c_str(), flags | O_CLOEXEC);
      if (fd < 0 && errno != ETXTBSY) {
        tally.refuse(errno);
        continue;
      }
      // Root's own programs in the sandbox are its to write; those of process 1 and its helpers are
      // the host's.
      const bool is_agent = pid == 1 || target == read_link("/proc/1/exe");
      if (fd >= 0) ::close(fd);
      tally.succeed(exe + " (" + target + ") can be written",
                    !is_agent && is_same_file(exe, target) && is_own_pid_namespace(facts));
    }
  }
  return tally.outcome("no program but this one runs");
}

// The same through a descriptor that was opened before the program ended or changed.
Outcome write_program_by_path_descriptor(const Facts&) {
  const int path = ::open("/proc/1/exe", O_PATH | O_CLOEXEC);
  if (path < 0) return refused("open(O_PATH): " + error_name(errno));
  const std::string link = "/proc/self/fd/" + std::to_string(path);
  const int fd = ::open(link.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd >= 0 || errno == ETXTBSY)
    return got_through("the program of process 1 can be written through a path descriptor");
  const std::string first = error_name(errno);
  if (::fchmodat(AT_FDCWD, link.c_str(), 0777, 0) == 0)
    return got_through("the mode of process 1's program could be changed");
  return refused("open: " + first + ", chmod: " + error_name(errno));
}

}  // namespace

std::vector<Attempt> descriptor_attempts() {
  return {{"B01", "own_descriptors", list_own_descriptors},
          {"B01", "init_descriptors", list_init_descriptors},
          {"B01", "working_directory_in_descriptor", work_in_descriptors},
          {"B02", "write_program_files", write_program_files},
          {"B02", "write_program_by_path_descriptor", write_program_by_path_descriptor}};
}

}  // namespace glovebox::attack
