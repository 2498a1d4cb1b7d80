// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>

#include "base/text.h"
#include "base/unique_fd.h"
#include "image/helper.h"
#include "image/helper_modes.h"

namespace glovebox::image {
namespace {

constexpr size_t kMaxLine = 16384;
constexpr size_t kKeptLines = 12;
constexpr std::string_view kErrorMark = "!error ";

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno("pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// posix_spawn's file actions and attributes, freed on every way out.
struct SpawnPlan {
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

Result<pid_t> spawn(const HelperJob& job, int output) {
  SpawnPlan plan;
  std::vector<UniqueFd> high;  // out of the way of 0 … 3 + n, so that no dup2 overwrites a source
  const int floor = 16 + static_cast<int>(job.fds.size());
  const auto place = [&](int fd, int target) -> Result<void> {
    high.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, floor));
    if (!high.back()) return fail_errno("dup");
    ::posix_spawn_file_actions_adddup2(&plan.actions, high.back().get(), target);
    return {};
  };
  ::posix_spawn_file_actions_addopen(&plan.actions, 0, "/dev/null", O_RDONLY, 0);
  GB_TRYV(place(output, 1));
  GB_TRYV(place(output, 2));
  for (size_t i = 0; i < job.fds.size(); ++i) GB_TRYV(place(job.fds[i], 3 + static_cast<int>(i)));
  ::posix_spawn_file_actions_addclosefrom_np(&plan.actions, 3 + static_cast<int>(job.fds.size()));

  std::vector<std::string> words = {std::string(kHelperName), job.mode, std::to_string(::getpid())};
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  std::string path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
              lang = "LC_ALL=C.UTF-8";
  char* envp[] = {path.data(), lang.data(), nullptr};
  pid_t pid = -1;
  if (const int error = ::posix_spawn(&pid, "/proc/self/exe", &plan.actions, &plan.attributes,
                                      argv.data(), envp)) {
    return fail_errno("start helper process", error);
  }
  return pid;
}

// "!error CODE LIMIT TEXT" from a process that may be in hostile hands: the code is looked up, the
// text made printable.
std::optional<Error> parse_error(std::string_view line) {
  if (line.substr(0, kErrorMark.size()) != kErrorMark) return std::nullopt;
  line.remove_prefix(kErrorMark.size());
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  Error error{code_from_name(line.substr(0, first)), utf8_lossy(line.substr(second + 1, 2048)), {}};
  for (char& c : error.message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  const std::string limit =
      utf8_lossy(line.substr(first + 1, std::min<size_t>(second - first - 1, 64)));
  if (limit != "-") error.details["limit"] = limit;
  return error;
}

// Cuts a stream into lines and remembers the last ones.
class Lines {
 public:
  explicit Lines(const std::function<void(std::string_view)>& on_line) : on_line_(on_line) {}

  void feed(std::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n' || c == '\r') {
        finish();
      } else if (line_.size() < kMaxLine) {
        line_ += c;
      }
    }
  }
  void finish() {
    if (line_.empty()) return;
    if (auto found = parse_error(line_)) {
      if (!error) error = std::move(found);
    } else {
      on_line_(line_);
      last_.push_back(utf8_lossy(std::string_view(line_).substr(0, 400)));
      if (last_.size() > kKeptLines) last_.pop_front();
    }
    line_.clear();
  }
  std::string tail() const {
    std::string out;
    for (const auto& l : last_) out += (out.empty() ? "" : "\n") + l;
    return out;
  }
  std::optional<Error> error;

 private:
  const std::function<void(std::string_view)>& on_line_;
  std::string line_;
  std::deque<std::string> last_;
};

}  // namespace

std::string error_line(const Error& error) {
  const auto limit = error.details.find("limit");
  std::string text = error.message.substr(0, 2048);
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return std::string(kErrorMark) + std::string(info(error.code).name) + " " +
         (limit == error.details.end() ? "-" : limit->second) + " " + text + "\n";
}

Result<void> run_helper_job(const HelperJob& job,
                            const std::function<void(std::string_view)>& on_line) {
  // Without this a program whose main forgot run_helper() would start itself over and over.
  if (!helper_is_wired()) return fail(Code::kInternal, "main() does not call image::run_helper()");
  GB_TRY(auto pipe, make_pipe());
  GB_TRY(const pid_t pid, spawn(job, pipe.write.get()));
  pipe.write.reset();
  Lines lines(on_line);
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(pipe.read.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    lines.feed({buffer, static_cast<size_t>(n)});
  }
  lines.finish();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (lines.error) return fail(std::move(*lines.error));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string how = WIFSIGNALED(status)
                              ? std::string("was killed by ") + ::strsignal(WTERMSIG(status))
                              : "ended with status " + std::to_string(WEXITSTATUS(status));
  return fail(Code::kInternal, "helper \"" + job.mode + "\" " + how + ": " + lines.tail());
}

}  // namespace glovebox::image
