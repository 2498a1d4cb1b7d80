// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "programs/attack/attack.h"

// B11: takes more of everything than the sandbox's limits give. Each gets through when it was given
// `kTimes` its limit. What becomes of neighbours and of the daemon meanwhile is the host side's to
// see.
namespace glovebox::attack {
namespace {

constexpr long kTimes = 3;
constexpr size_t kMiB = 1 << 20;
constexpr int kBombSeconds = 60;  // on a slow disk, beside others

std::string amount(long number, const std::string& of_what, long limit) {
  return std::to_string(number) + " " + of_what + " (limit " + std::to_string(limit) + ")";
}

Outcome too_many(long number, const std::string& of_what, long limit) {
  return got_through("was given " + amount(number, of_what, limit));
}
Outcome stopped(long number, const std::string& of_what, long limit, int error) {
  return refused(error_name(error) + " after " + amount(number, of_what, limit));
}

Outcome fork_bomb(const Facts& facts) {
  const long limit = facts.limit("processes", 64);
  std::vector<pid_t> children;
  int error = 0;
  while (error == 0 && static_cast<long>(children.size()) < kTimes * limit) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    if (child < 0) error = errno;
    if (child > 0) children.push_back(child);
  }
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  const auto made = static_cast<long>(children.size());
  return error == 0 ? too_many(made, "processes", limit) : stopped(made, "processes", limit, error);
}

void* wait_for_ever(void*) {
  for (;;) ::pause();
}

Outcome thread_bomb(const Facts& facts) {
  const long limit = facts.limit("processes", 64);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, 64 << 10);
  long made = 0;
  for (; made < kTimes * limit; ++made) {
    pthread_t thread;
    const int error = ::pthread_create(&thread, &attributes, wait_for_ever, nullptr);
    if (error != 0) return stopped(made, "threads", limit, error);
  }
  return too_many(made, "threads", limit);
}

// In a child, with the amount so far in shared memory: the usual end is to be killed.
Outcome memory_hog(const Facts& facts) {
  static long limit;
  limit = facts.limit("memory_mb", 256);
  static volatile long* taken;
  taken = static_cast<volatile long*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (taken == MAP_FAILED) return not_applicable("no shared page");
  const int status = in_child(
      [](void*) {
        while (*taken < kTimes * limit) {
          auto* block = static_cast<volatile char*>(::mmap(
              nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
          if (block == MAP_FAILED) {
            taken[1] = errno;
            return 1;
          }
          for (size_t at = 0; at < 4 * kMiB; at += 4096) block[at] = 1;
          *taken = *taken + 4;
        }
        return 0;
      },
      nullptr, kBombSeconds);
  const long mib = *taken;
  if (status == 0) return too_many(mib, "MiB of memory", limit);
  if (taken[1] != 0) return stopped(mib, "MiB of memory", limit, static_cast<int>(taken[1]));
  if (status == 128 + SIGKILL)
    return refused("SIGKILL after " + amount(mib, "MiB of memory", limit));
  return status == -1 ? Outcome{Verdict::kUndecided,
                                "still going after " + amount(mib, "MiB of memory", limit)}
                      : refused("ended with status " + std::to_string(status) + " after " +
                                amount(mib, "MiB of memory", limit));
}

Outcome fill(const std::string& directory, long limit, const std::string& of_what) {
  static std::string path;
  path = directory + "/glovebox-attack-fill";
  static long most;
  most = kTimes * limit;
  static volatile long* written;
  written = static_cast<volatile long*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (written == MAP_FAILED) return not_applicable("no shared page");
  const int status = in_child(
      [](void*) {
        const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return errno;
        static char block[kMiB];
        for (size_t at = 0; at < sizeof block; ++at) block[at] = static_cast<char>(at * 31 >> 3);
        while (*written < most) {
          if (::write(fd, block, sizeof block) < static_cast<ssize_t>(sizeof block))
            return errno == 0 ? ENOSPC : errno;
          *written = *written + 1;
        }
        return 0;
      },
      nullptr, kBombSeconds);
  ::unlink(path.c_str());
  const long mib = *written;
  if (status == 0) return too_many(mib, "MiB " + of_what, limit);
  if (status == -1)
    return {Verdict::kUndecided, "still going after " + amount(mib, "MiB " + of_what, limit)};
  return status == 128 + SIGKILL ? refused("SIGKILL after " + amount(mib, "MiB " + of_what, limit))
                                 : stopped(mib, "MiB " + of_what, limit, status);
}

Outcome fill_shared_memory(const Facts& facts) {
  return fill("/dev/shm", facts.limit("memory_mb", 256), "in /dev/shm");
}

Outcome fill_disk(const Facts& facts) {
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  const Outcome outcome = fill(directory, facts.limit("disk_mb", 128), "on the disk");
  ::rmdir(directory.c_str());
  return outcome;
}

// The bound is what mkfs gives: one inode for 4 KiB on small disks, fewer on large ones.
Outcome fill_inodes(const Facts& facts) {
  const long limit = facts.limit("disk_mb", 128) * 256;
  const std::string directory = work_directory();
  if (directory.empty()) return not_applicable("no place for a file");
  const int parent = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  long made = 0;
  int error = 0;
  for (; made < kTimes * limit && error == 0; ++made) {
    if (::mknodat(parent, std::to_string(made).c_str(), S_IFREG | 0600, 0) != 0) error = errno;
  }
  for (long at = 0; at < made; ++at) ::unlinkat(parent, std::to_string(at).c_str(), 0);
  ::rmdir(directory.c_str());
  return error == 0 ? too_many(made, "files", limit) : stopped(made, "files", limit, error);
}

Outcome exhaust_descriptors(const Facts& facts) {
  const long limit = facts.limit("open_files", 256);
  for (long opened = 0; opened < kTimes * limit; ++opened) {
    if (::open("/dev/null", O_RDONLY) < 0) return stopped(opened, "descriptors", limit, errno);
  }
  return too_many(kTimes * limit, "descriptors", limit);
}

// The kernel counts instances and watches for each user. Those of other processes of the same user
// count as well, so several are used.
Outcome exhaust_inotify(const Facts& facts) {
  const long limit = facts.limit("open_files", 256);
  static long made;
  made = 0;
  int error = 0;
  while (error == 0 && made < kTimes * limit) {
    const int fd = ::inotify_init1(IN_CLOEXEC);
    if (fd < 0)
      error = errno;
    else
      ++made;
    if (fd >= 0 && ::inotify_add_watch(fd, "/", IN_CREATE) < 0) error = errno;
  }
  return error == 0 ? too_many(made, "inotify instances", limit)
                    : stopped(made, "inotify instances", limit, error);
}

}  // namespace

std::vector<Attempt> bomb_attempts() {
  return {{"B11", "fork_bomb", fork_bomb, true},
          {"B11", "thread_bomb", thread_bomb, true},
          {"B11", "exhaust_descriptors", exhaust_descriptors, true},
          {"B11", "exhaust_inotify", exhaust_inotify, true},
          {"B11", "fill_disk", fill_disk, true},
          {"B11", "fill_inodes", fill_inodes, true},
          {"B11", "fill_shared_memory", fill_shared_memory, true},
          {"B11", "memory_hog", memory_hog, true}};
}

}  // namespace glovebox::attack
