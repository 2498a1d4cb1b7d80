// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "programs/attack/attack.h"

// B10: what tells of the host.
namespace glovebox::attack {
namespace {

Outcome read_command_line(const Facts& facts) {
  const std::string line = read_file("/proc/cmdline");
  if (line.empty()) return refused("/proc/cmdline is empty or cannot be read");
  const std::string host = facts.command_line;
  if (host.empty()) return not_applicable("the host told of no command line");
  if (line.find(host) != std::string::npos) return got_through("the host's: " + printable(line));
  return is_own_kernel(facts) ? harmless("the sandbox's own kernel's: " + printable(line))
                              : got_through(printable(line));
}

Outcome read_kernel_log(const Facts& facts) {
  char buffer[8192];
  const int n = ::klogctl(3 /* SYSLOG_ACTION_READ_ALL */, buffer, sizeof buffer);
  if (n < 0) return refused("syslog: " + error_name(errno));
  const std::string text(buffer, static_cast<size_t>(n));
  if (is_own_kernel(facts))
    return harmless("the log of the sandbox's own kernel: " + printable(text, 80));
  return got_through("the host's log: " + printable(text, 80));
}

// HOME and PATH, which an engine sets to values of the image: nothing else has a reason to be
// there.
bool is_plain(const std::string& environment) {
  for (size_t at = 0; at < environment.size();) {
    const size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string name = environment.substr(at, std::min(environment.find('=', at), end) - at);
    if (name != "HOME" && name != "PATH") return false;
    at = end + 1;
  }
  return true;
}

Outcome read_environments(const Facts& facts) {
  Tally tally;
  for (const int pid : process_ids()) {
    errno = 0;
    const std::string text = read_file("/proc/" + std::to_string(pid) + "/environ");
    if (text.empty() && errno != 0) tally.refuse(errno);
    std::string word;
    if (contains_any(text, facts.words, &word))
      tally.succeed("the environment of process " + std::to_string(pid) + " holds " + word, false);
    if (pid == 1 && !text.empty())
      tally.succeed("process 1 has an environment: " + printable(text, 80), is_plain(text));
  }
  return tally.outcome("process 1 has an empty environment, the others hold nothing of the host");
}

Outcome read_host_name(const Facts& facts) {
  utsname name{};
  ::uname(&name);
  std::string word;
  if (!facts.host_name.empty() &&
      (facts.host_name == name.nodename || read_file("/etc/hostname") == facts.host_name + "\n")) {
    return got_through("the name here is the host's: " + facts.host_name);
  }
  const std::string all = std::string(name.nodename) + "\n" + name.domainname + "\n" +
                          read_file("/etc/hostname") + "\n" + read_file("/etc/hosts") + "\n" +
                          read_file("/proc/sys/kernel/hostname") + "\n" +
                          read_file("/etc/resolv.conf");
  if (contains_any(all, facts.words, &word)) return got_through("it is known: " + word);
  return refused("the name here is " + std::string(name.nodename));
}

Outcome read_mounts(const Facts& facts) {
  Tally tally;
  size_t lines = 0;
  for (const char* who : {"self", "1"}) {
    for (const char* file : {"mountinfo", "mounts", "mountstats"}) {
      const std::string text = read_file(std::string("/proc/") + who + "/" + file);
      std::string word;
      if (contains_any(text, facts.words, &word))
        tally.succeed(std::string(file) + " of " + who + " names " + word, false);
      for (const char c : text) lines += c == '\n' ? 1 : 0;
    }
  }
  return lines == 0
             ? Outcome{Verdict::kUndecided, "no table of mounts can be read"}
             : tally.outcome(std::to_string(lines) + " lines, none names a path of the host");
}

// Everything that can be read below /proc and /sys, the targets of links included, within bounds.
class Search {
 public:
  explicit Search(const Facts& facts) : facts_(facts), end_(::time(nullptr) + 8) {}
  void directory(const std::string& path, int depth) {
    for (const auto& name : list_directory(path, 2000)) {
      if (is_over()) return;
      entry(path + "/" + name, name, depth);
    }
  }
  Outcome outcome() const {
    if (!found_.empty()) return got_through(found_);
    if (files_ == 0) return {Verdict::kUndecided, "nothing can be read"};
    return refused(std::to_string(files_) + " files and " + std::to_string(links_) +
                   " links hold nothing of the host");
  }

 private:
  bool is_over() const { return !found_.empty() || files_ > 20000 || ::time(nullptr) > end_; }
  void look(const std::string& text, const std::string& path) {
    std::string word;
    if (found_.empty() && contains_any(text, facts_.words, &word)) found_ = path + " holds " + word;
  }
  void entry(const std::string& path, const std::string& name, int depth) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return;
    if (S_ISLNK(status.st_mode)) {
      ++links_;
      look(read_link(path), path);
    } else if (S_ISDIR(status.st_mode)) {
      if (depth < 8) directory(path, depth + 1);
    } else if (S_ISREG(status.st_mode) && name != "kmsg" && name != "mem" && name != "kcore" &&
               name != "pagemap" && name != "clear_refs") {
      ++files_;
      look(read_file(path), path);
    }
  }

  const Facts& facts_;
  time_t end_;
  size_t files_ = 0, links_ = 0;
  std::string found_;
};

Outcome search(const Facts& facts, const char* directory) {
  if (facts.words.empty()) return not_applicable("the host told of no words to look for");
  Search all(facts);
  all.directory(directory, 0);
  return all.outcome();
}

Outcome search_proc(const Facts& facts) {
  return search(facts, "/proc");
}
Outcome search_sys(const Facts& facts) {
  return search(facts, "/sys");
}

}  // namespace

std::vector<Attempt> leak_attempts() {
  return {{"B10", "kernel_command_line", read_command_line},
          {"B10", "kernel_log", read_kernel_log},
          {"B10", "environments", read_environments},
          {"B10", "host_name", read_host_name},
          {"B10", "mount_table", read_mounts},
          {"B10", "search_proc", search_proc},
          {"B10", "search_sys", search_sys}};
}

}  // namespace glovebox::attack
