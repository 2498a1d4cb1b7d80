// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "programs/attack/attack.h"

namespace glovebox::attack {

long Facts::limit(const std::string& name, long otherwise) const {
  const auto found = limits.find(name);
  return found == limits.end() ? otherwise : found->second;
}

namespace {

void take_fact(Facts& facts, const std::string& name, const std::string& value) {
  if (name == "word") facts.words.push_back(value);
  if (name == "canary") facts.canary_path = value;
  if (name == "secret") facts.canary_secret = value;
  if (name == "kernel") facts.kernel = value;
  if (name == "pidns") facts.pid_namespace = value;
  if (name == "cmdline") facts.command_line = value;
  if (name == "tcp") facts.tcp.push_back(value);
  if (name == "unix") facts.unix_sockets.push_back(value);
  if (name == "pid") facts.pids.push_back(std::atoi(value.c_str()));
  if (name == "hostname") facts.host_name = value;
  if (name == "marker") facts.marker = value;
  if (name.rfind("limit_", 0) == 0) facts.limits[name.substr(6)] = std::atol(value.c_str());
}

}  // namespace

Facts read_facts(int fd) {
  Facts facts;
  for (int other = 0; other <= 1024; ++other) {
    if (::fcntl(other, F_GETFD) >= 0) facts.descriptors_at_start.push_back(other);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t equals = line.find('=');
    if (equals != std::string::npos && equals + 1 < line.size()) {
      take_fact(facts, line.substr(0, equals), line.substr(equals + 1));
    }
    at = end + 1;
  }
  return facts;
}

std::string this_kernel() {
  utsname name{};
  ::uname(&name);
  return std::string(name.release) + " " + name.version;
}

bool is_own_kernel(const Facts& facts) {
  return !facts.kernel.empty() && this_kernel() != facts.kernel;
}

bool is_own_pid_namespace(const Facts& facts) {
  if (is_own_kernel(facts)) return true;
  const std::string here = read_link("/proc/self/ns/pid");
  return !facts.pid_namespace.empty() && !here.empty() && here != facts.pid_namespace;
}

bool is_root() {
  return ::geteuid() == 0;
}

Outcome judge(long result, const Facts& facts, const std::string& what, std::vector<int> also) {
  const int error = errno;
  also.insert(also.end(), {EPERM, EACCES, ENOSYS, EROFS});
  if (result < 0 && std::find(also.begin(), also.end(), error) != also.end())
    return refused(what + ": " + error_name(error));
  const std::string answer =
      what + ": " + (result < 0 ? "looked at, " + error_name(error) : std::string("accepted"));
  if (is_own_kernel(facts))
    return harmless(answer + " by the sandbox's own kernel (" + printable(this_kernel(), 40) +
                    "), not the host's");
  return got_through(answer + " by the host's kernel");
}

void Tally::succeed(const std::string& what, bool is_harmless) {
  std::string& list = is_harmless ? harmless_ : through_;
  if (list.size() < 300) list += (list.empty() ? "" : "; ") + what;
}

Outcome Tally::outcome(const std::string& none) const {
  std::string counts;
  for (const auto& [error, count] : errors_) {
    counts += (counts.empty() ? "" : ", ") + error_name(error) + " " + std::to_string(count) + "x";
  }
  if (!through_.empty()) return got_through(through_);
  if (!harmless_.empty())
    return harmless(harmless_ + (counts.empty() ? "" : "; otherwise " + counts));
  return refused(counts.empty() ? none : counts);
}

std::string error_name(int error) {
  const char* name = ::strerrorname_np(error);
  return name == nullptr ? "errno " + std::to_string(error) : name;
}

std::string read_file(const std::string& path, size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text(limit, '\0');
  size_t filled = 0;
  for (ssize_t n; filled < limit && (n = ::read(fd, text.data() + filled, limit - filled)) > 0;)
    filled += static_cast<size_t>(n);
  ::close(fd);
  text.resize(filled);
  return text;
}

std::string read_link(const std::string& path) {
  char buffer[4096];
  const ssize_t n = ::readlink(path.c_str(), buffer, sizeof buffer);
  return n < 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
}

std::vector<std::string> list_directory(const std::string& path, size_t limit) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return names;
  while (names.size() < limit) {
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(directory);
  return names;
}

std::vector<int> process_ids() {
  std::vector<int> ids;
  for (const auto& name : list_directory("/proc")) {
    const int id = std::atoi(name.c_str());
    if (id > 0) ids.push_back(id);
  }
  return ids;
}

bool write_file(const std::string& path, const std::string& text, int mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return false;
  const bool wrote = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return wrote;
}

std::string work_directory() {
  const char* home = ::getenv("HOME");
  for (std::string place : {std::string("/tmp"), std::string("/workspace"),
                            std::string(home == nullptr ? "/root" : home)}) {
    place += "/glovebox-attack-XXXXXX";
    if (::mkdtemp(place.data()) != nullptr) return place;
  }
  return {};
}

bool contains_any(const std::string& text, const std::vector<std::string>& words,
                  std::string* found) {
  for (const auto& word : words) {
    if (text.find(word) == std::string::npos) continue;
    if (found != nullptr) *found = word;
    return true;
  }
  return false;
}

std::string printable(const std::string& text, size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) out += c >= 0x20 && c < 0x7f ? c : ' ';
  return out;
}

int in_child(int (*body)(void*), void* argument, int seconds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body(argument));
  if (child < 0) return -1;
  int status = 0;
  const time_t end = ::time(nullptr) + seconds;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (::time(nullptr) > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return -1;
    }
    ::usleep(1000);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace glovebox::attack
