// SPDX-License-Identifier: Apache-2.0
// Stands in for the glovebox binary where a test needs a process beside it: keeps the router
// namespace, or speaks the helpers' protocol.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>

#include "base/text.h"
#include "sys/files.h"
#include "sys/process.h"

#include "network/router.h"

namespace {

void say(const std::string& line) {
  const std::string text = line + "\n";
  if (::write(3, text.data(), text.size()) < 0) ::_exit(1);
}

// Answers every call; "die" ends it, "hang" silences it.
int speak() {
  say(R"({"op":"ready"})");
  FILE* in = ::fdopen(3, "r");
  char line[4096];
  bool hangs = false;
  while (std::fgets(line, sizeof line, in) != nullptr) {
    const std::string text = line;
    if (text.find("\"die\"") != std::string::npos) return 1;
    if (text.find("\"hang\"") != std::string::npos) hangs = true;
    const size_t at = text.find("\"seq\":");
    if (hangs || at == std::string::npos) continue;
    const std::string number = std::to_string(std::atoi(text.c_str() + at + 6));
    if (text.find("\"refuse\"") != std::string::npos) {
      say(R"({"op":"failed","message":"no","seq":)" + number + "}");
    } else {
      say(R"({"op":"event","pid":)" + std::to_string(::getpid()) + "}");
      say(R"({"op":"done","seq":)" + number + "}");
    }
  }
  return 0;
}

std::string answer_to(const std::string& line) {
  const size_t at = line.find("\"seq\":");
  return at == line.npos
             ? ""
             : R"({"op":"done","seq":)" + std::to_string(std::atoi(line.c_str() + at + 6)) + "}";
}

// Writes what it is told to <directory>/<name>.log, and answers while there is no
// <directory>/<name>.hold.
int listen(const std::string& directory, const std::string& name) {
  FILE* log = std::fopen((directory + "/" + name + ".log").c_str(), "a");
  if (log == nullptr) return 1;
  std::fprintf(log, "pid %d\n", ::getpid());
  std::fflush(log);
  say(R"({"op":"ready"})");
  std::string received;
  std::deque<std::string> answers;
  while (true) {
    char bytes[4096];
    if (glovebox::sys::wait_readable(3, std::chrono::milliseconds(2))) {
      const ssize_t n = ::read(3, bytes, sizeof bytes);
      if (n <= 0) return 0;
      received.append(bytes, static_cast<size_t>(n));
    }
    for (size_t end = 0; (end = received.find('\n')) != received.npos; received.erase(0, end + 1)) {
      const std::string line = received.substr(0, end);
      std::fprintf(log, "%s\n", line.c_str());
      std::fflush(log);
      answers.push_back(answer_to(line));
    }
    for (; !answers.empty() && !glovebox::sys::exists(directory + "/" + name + ".hold");
         answers.pop_front()) {
      if (!answers.front().empty()) say(answers.front());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "internal-keep-network") return glovebox::network::keep_network();
  if (argc > 2 && word == "internal-egress-proxy") return listen(argv[2], "egress");
  if (argc > 2 && word == "internal-registry-proxy") return listen(argv[2], "registry");
  return word == "speak" ? speak() : 2;
}
