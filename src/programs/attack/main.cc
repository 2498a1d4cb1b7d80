// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "programs/attack/attack.h"

namespace glovebox::attack {
namespace {

constexpr int kAttemptMilliseconds = 90'000;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : printable(text, 600)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kRefused:
      return "refused";
    case Verdict::kHarmless:
      return "harmless";
    case Verdict::kGotThrough:
      return "GOT_THROUGH";
    case Verdict::kNotApplicable:
      return "not_applicable";
    case Verdict::kUndecided:
      return "undecided";
  }
  return "undecided";
}

void say(const std::string& line) {
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, line.data(), line.size());
}

std::vector<Attempt> all_attempts() {
  std::vector<Attempt> all;
  for (const auto& group :
       {descriptor_attempts(), mount_attempts(), kernel_attempts(), device_attempts(),
        socket_attempts(), file_attempts(), process_attempts(), leak_attempts(), bomb_attempts(),
        agent_attempts()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

// The child's report: one byte of verdict, then the evidence.
Outcome receive(int fd, pid_t child) {
  std::string report;
  pollfd wait{fd, POLLIN, 0};
  char buffer[4096];
  while (::poll(&wait, 1, kAttemptMilliseconds) > 0) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    report.append(buffer, static_cast<size_t>(n));
  }
  const bool is_late = report.empty() && ::waitpid(child, nullptr, WNOHANG) == 0;
  if (is_late) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!report.empty()) return {static_cast<Verdict>(report[0]), report.substr(1)};
  if (is_late) return {Verdict::kUndecided, "it did not end in time"};
  if (WIFSIGNALED(status)) return refused("killed by signal " + std::to_string(WTERMSIG(status)));
  return {Verdict::kUndecided, "the attempt gave no report"};
}

// In a process of its own: an attempt may change its process, or be killed for what it does.
Outcome attempt_in_child(const Attempt& attempt, const Facts& facts) {
  int ends[2];
  if (::pipe(ends) != 0) return {Verdict::kUndecided, "pipe: " + error_name(errno)};
  const pid_t child = ::fork();
  if (child < 0) return {Verdict::kUndecided, "fork: " + error_name(errno)};
  if (child == 0) {
    ::close(ends[0]);
    const Outcome outcome = attempt.run(facts);
    const std::string report =
        std::string(1, static_cast<char>(outcome.verdict)) + outcome.evidence;
    ::_exit(::write(ends[1], report.data(), report.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  const Outcome outcome = receive(ends[0], child);
  ::close(ends[0]);
  return outcome;
}

int list() {
  for (const auto& attempt : all_attempts()) {
    say("{\"id\":" + quoted(attempt.id) + ",\"attempt\":" + quoted(attempt.name) +
        ",\"alone\":" + (attempt.is_alone ? "true" : "false") + "}\n");
  }
  return 0;
}

// The host's own processes are nobody's to attack: by mistake this program would do on the host
// what it does in a sandbox.
bool is_on_the_host(const Facts& facts) {
  constexpr char kInitialPidNamespace[] = "pid:[4026531836]";
  return !is_own_kernel(facts) && read_link("/proc/self/ns/pid") == kInitialPidNamespace;
}

int run(const std::vector<std::string>& wanted) {
  const Facts facts = read_facts(STDIN_FILENO);
  if (is_on_the_host(facts)) {
    say("glovebox-attack: this is no sandbox: the process is in the host's own pid namespace\n");
    return 2;
  }
  size_t found = 0;
  for (const auto& attempt : all_attempts()) {
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), attempt.name) != wanted.end();
    if (!is_wanted && (!wanted.empty() || attempt.is_alone)) continue;
    ++found;
    const Outcome outcome = attempt_in_child(attempt, facts);
    // On a line of its own even when the attempt has filled standard output with garbage.
    say("\n{\"id\":" + quoted(attempt.id) + ",\"attempt\":" + quoted(attempt.name) +
        ",\"result\":" + quoted(name_of(outcome.verdict)) +
        ",\"evidence\":" + quoted(outcome.evidence) + "}\n");
  }
  return found >= wanted.size() ? 0 : 2;
}

}  // namespace
}  // namespace glovebox::attack

int main(int argc, char** argv) {
  using namespace glovebox::attack;
  ::signal(SIGPIPE, SIG_IGN);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "list") return list();
  if (mode == "run") return run(std::vector<std::string>(argv + 2, argv + argc));
  const int status = run_helper(argc, argv);
  if (status >= 0) return status;
  say("usage: glovebox-attack list | run [NAME...] < facts\n");
  return 2;
}
