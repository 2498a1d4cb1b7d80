// SPDX-License-Identifier: Apache-2.0
// Stands in for the glovebox binary where a test needs a process beside it: keeps the router namespace, or speaks the helpers' protocol.
#include <unistd.h>

#include <cstdio>
#include <string>

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

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "internal-keep-network") return glovebox::network::keep_network();
  return word == "speak" ? speak() : 2;
}
