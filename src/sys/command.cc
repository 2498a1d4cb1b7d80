// SPDX-License-Identifier: Apache-2.0
#include "sys/command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "base/unique_fd.h"
#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::sys {
namespace {

constexpr size_t kKeptOutput = 4000;

// Signals as a new program expects them.
class Attributes {
 public:
  Attributes() {
    ::posix_spawnattr_init(&value_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    ::posix_spawnattr_setsigmask(&value_, &none);
    ::posix_spawnattr_setsigdefault(&value_, &all);
    ::posix_spawnattr_setflags(&value_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Attributes() { ::posix_spawnattr_destroy(&value_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  const posix_spawnattr_t* get() const { return &value_; }

 private:
  posix_spawnattr_t value_;
};

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&value_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&value_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  void open_null() { ::posix_spawn_file_actions_addopen(&value_, 0, "/dev/null", O_RDONLY, 0); }
  void use(int ours, int number) {
    ::posix_spawn_file_actions_adddup2(&value_, ours, number);
    highest_ = std::max(highest_, number);
  }
  // Last: whatever was opened without close-on-exec, such as a listening socket, stays with us.
  void close_others() { ::posix_spawn_file_actions_addclosefrom_np(&value_, highest_ + 1); }
  const posix_spawn_file_actions_t* get() const { return &value_; }

 private:
  posix_spawn_file_actions_t value_;
  int highest_ = 2;
};

Result<pid_t> spawn(const std::string& path, const std::vector<std::string>& words, const FileActions& actions) {
  std::string program = find_program(path);
  if (program.empty()) return fail(Code::kCommandNotFound, path + " is not installed");
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const Attributes attributes;
  pid_t pid = 0;
  int rc = ::posix_spawn(&pid, program.c_str(), actions.get(), attributes.get(), argv.data(), environ);
  if (rc != 0) return fail_errno(program, rc);
  return pid;
}

Result<UniqueFd> memory_file(std::string_view content) {
  UniqueFd file(static_cast<int>(::syscall(SYS_memfd_create, "glovebox", MFD_CLOEXEC)));
  if (!file) return fail_errno("memfd_create");
  while (!content.empty()) {
    const ssize_t n = ::write(file.get(), content.data(), content.size());
    if (n < 0) return fail_errno("write");
    content.remove_prefix(static_cast<size_t>(n));
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
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

Result<pid_t> start_program(const std::string& path, const std::vector<std::string>& argv,
                            const std::vector<std::pair<int, int>>& descriptors) {
  FileActions actions;
  actions.open_null();
  // Above every wanted number first, so that no step overwrites a descriptor that is still needed.
  std::vector<UniqueFd> copies;
  for (const auto& [ours, number] : descriptors) {
    copies.emplace_back(::fcntl(ours, F_DUPFD_CLOEXEC, 100));
    if (!copies.back()) return fail_errno("fcntl(F_DUPFD_CLOEXEC)");
    actions.use(copies.back().get(), number);
  }
  actions.close_others();
  return spawn(path, argv, actions);
}

Result<std::string> run_command(const std::vector<std::string>& command,
                                std::chrono::milliseconds patience, std::string_view input) {
  GB_TRY(UniqueFd output, memory_file({}));
  GB_TRY(const UniqueFd given, memory_file(input));
  FileActions actions;
  actions.use(given.get(), 0);
  actions.use(output.get(), 1);
  actions.use(output.get(), 2);
  actions.close_others();
  GB_TRY(pid_t pid, spawn(command[0], command, actions));
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  bool ended = wait_readable(pidfd.get(), patience);
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::lseek(output.get(), 0, SEEK_SET);
  std::string text = read_fd(output.get()).value_or("");
  if (text.size() > kKeptOutput) text.erase(0, text.size() - kKeptOutput);
  if (!ended) return fail(Code::kTimeout, command[0] + " did not end in time");
  if (status == 0) return text;
  return fail(Code::kIo, command[0] + " failed: " + utf8_lossy(text));
}

}  // namespace glovebox::sys
