// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "base/unique_fd.h"
#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::runtime {
namespace {

constexpr size_t kKeptOutput = 4000;

Result<pid_t> start(const std::vector<std::string>& command, int output) {
  std::string program = find_program(command[0]);
  if (program.empty()) return fail(Code::kCommandNotFound, command[0] + " is not installed");
  std::vector<char*> argv;
  for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  ::posix_spawn_file_actions_adddup2(&actions, output, 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  int rc = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (rc != 0) return fail_errno(program, rc);
  return pid;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0 ? name : "";
  const char* path = ::getenv("PATH");
  std::string directories = std::string(path != nullptr ? path : "") +
                            ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  for (const auto& directory : split(directories, ':')) {
    std::string candidate = directory + "/" + name;
    if (directory.starts_with("/") && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

Result<std::string> run_command(const std::vector<std::string>& command,
                                std::chrono::milliseconds patience) {
  UniqueFd output(static_cast<int>(::syscall(SYS_memfd_create, "output", MFD_CLOEXEC)));
  if (!output) return fail_errno("memfd_create");
  GB_TRY(pid_t pid, start(command, output.get()));
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  bool ended = sys::wait_readable(pidfd.get(), patience);
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::lseek(output.get(), 0, SEEK_SET);
  std::string text = sys::read_fd(output.get()).value_or("");
  if (text.size() > kKeptOutput) text.erase(0, text.size() - kKeptOutput);
  if (!ended) return fail(Code::kTimeout, command[0] + " did not end in time");
  if (status == 0) return text;
  return fail(Code::kIo, command[0] + " failed: " + utf8_lossy(text));
}

}  // namespace glovebox::runtime
