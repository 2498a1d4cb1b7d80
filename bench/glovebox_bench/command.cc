// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace glovebox::bench {

Result<pid_t> Commands::start(const Words& argv, int stdin_fd, int stdout_fd) const {
  std::vector<char*> words;
  for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  const auto give = [&](int fd, int target, int flags) {
    if (fd >= 0) return ::posix_spawn_file_actions_adddup2(&files, fd, target);
    return ::posix_spawn_file_actions_addopen(&files, target, "/dev/null", flags, 0);
  };
  give(stdin_fd, 0, O_RDONLY);
  give(stdout_fd, 1, O_WRONLY);
  ::posix_spawn_file_actions_addopen(&files, 2, log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, words[0], &files, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return fail_errno(argv[0], error);
  return pid;
}

Result<void> Commands::check(int status, const Words& argv) const {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  std::ifstream log(log_path_);
  std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  if (text.size() > 600) text.erase(0, text.size() - 600);
  std::string line;
  for (const auto& word : argv) line += word + " ";
  return fail(Code::kInternal, line + "gave wait status " + std::to_string(status) + ": " + text);
}

Result<void> Commands::finish(pid_t pid, const Words& argv) const {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return fail_errno("waitpid");
  }
  return check(status, argv);
}

Result<void> Commands::run(const Words& argv, int stdin_fd) const {
  GB_TRY(const pid_t pid, start(argv, stdin_fd));
  return finish(pid, argv);
}

Result<void> Commands::run_and_reap(const Words& argv) const {
  GB_TRY(const pid_t pid, start(argv));
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == pid) return check(status, argv);
    if (ended < 0 && errno != EINTR) return fail_errno("waitpid");
  }
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const auto& directory : split(path != nullptr ? path : "", ':')) {
    std::string candidate = directory + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace glovebox::bench
