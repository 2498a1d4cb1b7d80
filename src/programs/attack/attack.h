// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <map>
#include <string>
#include <vector>

// glovebox-attack: runs inside a sandbox and tries to get out of it. docs/attack.md says what each
// attempt is.
//
//   glovebox-attack list               names, one JSON line each
//   glovebox-attack run [NAME…]        facts on standard input, one JSON line of outcome per
//   attempt on standard output glovebox-attack hold|where|swap|whoami …   helpers for attempts that
//   the host's side makes (helpers.cc)
namespace glovebox::attack {

enum class Verdict {
  kRefused,   // tried, and something said no: `evidence` names it
  kHarmless,  // done, with evidence that it reached nothing outside
  kGotThrough,
  kNotApplicable,  // could not be tried; `evidence` says why
  kUndecided,      // tried, and nothing can be said: counts as a failure
};

struct Outcome {
  Verdict verdict = Verdict::kUndecided;
  std::string evidence;
};

inline Outcome refused(std::string evidence) {
  return {Verdict::kRefused, std::move(evidence)};
}
inline Outcome harmless(std::string evidence) {
  return {Verdict::kHarmless, std::move(evidence)};
}
inline Outcome got_through(std::string evidence) {
  return {Verdict::kGotThrough, std::move(evidence)};
}
inline Outcome not_applicable(std::string evidence) {
  return {Verdict::kNotApplicable, std::move(evidence)};
}

// What the host's side knows and the sandbox must not find. Lines of name=value on standard input:
// arguments would show in /proc.
struct Facts {
  std::vector<std::string>
      words;  // word=: must not be readable anywhere: data directory, host name, canary, …
  std::string canary_path;                // canary=: a file of the host, which holds canary_secret
  std::string canary_secret;              // secret=
  std::string kernel;                     // kernel=: the host's uname release and version
  std::string pid_namespace;              // pidns=: the host's /proc/self/ns/pid
  std::string command_line;               // cmdline=: the host's /proc/cmdline
  std::vector<std::string> tcp;           // tcp=ADDRESS:PORT, where something of the host listens
  std::vector<std::string> unix_sockets;  // unix=PATH or @NAME
  std::vector<int> pids;                  // pid=: processes of the host
  std::string marker;                     // marker=: in the arguments of a process of the host
  std::map<std::string, long>
      limits;  // limit_processes=, limit_memory_mb=, limit_disk_mb=, limit_open_files=
  std::vector<int> descriptors_at_start;  // of this process, before it made any
  std::string host_name;                  // hostname=
  long limit(const std::string& name, long otherwise) const;
};
Facts read_facts(int fd);

struct Attempt {
  const char* id;    // of the list in docs/attack.md: "B01"
  const char* name;  // unique
  Outcome (*run)(const Facts& facts);
  bool is_alone = false;  // may end its sandbox: run only when named
};
std::vector<Attempt> descriptor_attempts();
std::vector<Attempt> mount_attempts();
std::vector<Attempt> kernel_attempts();
std::vector<Attempt> device_attempts();
std::vector<Attempt> socket_attempts();
std::vector<Attempt> file_attempts();
std::vector<Attempt> process_attempts();
std::vector<Attempt> leak_attempts();
std::vector<Attempt> bomb_attempts();
std::vector<Attempt> agent_attempts();

int run_helper(int argc, char** argv);  // -1: no helper of that name

// Where this program runs
// -------------------------------------------------------------------------------------------------------

// True only with evidence: the host has told its kernel's name, and this one is another.
bool is_own_kernel(const Facts& facts);
// The same for what can be seen of processes: another kernel, or another pid namespace of the same.
bool is_own_pid_namespace(const Facts& facts);
std::string this_kernel();
bool is_root();

// One call whose refusal is the defence. `result` < 0 with errno EPERM, EACCES, ENOSYS, EROFS or
// one of `also` is a refusal. Everything else means that the call was carried out or got as far as
// looking at its arguments: harmless in a kernel of the sandbox's own.
Outcome judge(long result, const Facts& facts, const std::string& what, std::vector<int> also = {});

// Many tries of one kind: counts the refusals by errno and keeps what succeeded.
class Tally {
 public:
  void refuse(int error) { ++errors_[error]; }
  void succeed(const std::string& what, bool is_harmless);
  // `none` is the evidence when nothing was tried at all.
  Outcome outcome(const std::string& none) const;

 private:
  std::map<int, int> errors_;
  std::string through_, harmless_;
};

// Small things
// ------------------------------------------------------------------------------------------------------------------

std::string error_name(int error);  // "EPERM"
std::string read_file(const std::string& path,
                      size_t limit = 64 << 10);  // what can be read at once; empty when nothing
std::string read_link(const std::string& path);
std::vector<std::string> list_directory(const std::string& path, size_t limit = 4096);
std::vector<int> process_ids();  // of /proc
bool write_file(const std::string& path, const std::string& text, int mode = 0644);
// A private directory for an attempt's files, below the first place that takes one; empty when none
// does.
std::string work_directory();
bool contains_any(const std::string& text, const std::vector<std::string>& words,
                  std::string* found = nullptr);
std::string printable(const std::string& text, size_t limit = 160);
// Runs `body` in a child process and returns its exit status, 128 + signal, or -1 after `seconds`.
int in_child(int (*body)(void*), void* argument, int seconds = 30);

}  // namespace glovebox::attack
