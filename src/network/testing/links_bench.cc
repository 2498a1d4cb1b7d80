// SPDX-License-Identifier: Apache-2.0
// Prints how long a link takes: from the pool, made anew, and made by the ip tool as a script would. Run as root, with the
// program to start as keeper as argument: links_bench PATH [ROUNDS]
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "network/links.h"
#include "network/router.h"
#include "sys/command.h"

namespace {

using namespace glovebox;

void report(const char* what, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double q) { return ms[std::min(ms.size() - 1, static_cast<size_t>(q * static_cast<double>(ms.size())))]; };
  std::printf("%-28s p50 %7.3f ms   p95 %7.3f ms   p99 %7.3f ms   (%zu)\n", what, at(0.5), at(0.95), at(0.99), ms.size());
}

std::vector<double> measure(int rounds, const std::function<void(int)>& work) {
  std::vector<double> ms;
  for (int i = 0; i < rounds; ++i) {
    const auto began = std::chrono::steady_clock::now();
    work(i);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  }
  return ms;
}

void must(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "links_bench: %s failed\n", what);
  std::exit(1);
}

// The same by hand: a namespace and a pair of interfaces with addresses and a route.
void by_tools(const std::string& name) {
  const auto run = [](std::vector<std::string> words) { must(sys::run_command(words, std::chrono::seconds(10)).has_value(), words[0].c_str()); };
  run({"ip", "netns", "add", name});
  run({"ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "eth0"});
  run({"ip", "-n", name, "address", "add", "10.200.8.1/31", "dev", "eth0"});
  run({"ip", "-n", name, "link", "set", "lo", "up"});
  run({"ip", "-n", name, "link", "set", "v0", "up"});
  run({"ip", "-n", name, "link", "set", "eth0", "up"});
  run({"ip", "-n", name, "route", "add", "default", "via", "10.200.8.0"});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || ::geteuid() != 0) return std::fprintf(stderr, "usage, as root: links_bench PROGRAM [ROUNDS]\n"), 2;
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 100;
  char directory[] = "/tmp/glovebox-links-bench-XXXXXX";
  must(::mkdtemp(directory) != nullptr, "mkdtemp");
  auto router = network::Router::open(directory, argv[1]);
  must(router.has_value(), "the router");
  auto links = network::Links::open(router->netns());
  must(links.has_value(), "the links");
  std::vector<network::Link> held;
  const auto take = [&](int) {
    auto link = (*links)->take();
    must(link.has_value(), "a link");
    held.push_back(std::move(*link));
  };
  report("link, made anew", measure(rounds, take));
  held.clear();
  std::vector<double> pooled;
  for (int i = 0; i < rounds; ++i) {
    must((*links)->prepare(1).has_value(), "the pool");
    pooled.push_back(measure(1, take)[0]);
    held.clear();
  }
  report("link, from the pool", std::move(pooled));
  const std::string prefix = "gbb" + std::to_string(::getpid()) + "-";
  const int by_hand = std::min(rounds, 30);
  report("peer: the ip tool, 7 calls", measure(by_hand, [&](int i) { by_tools(prefix + std::to_string(i)); }));
  for (int i = 0; i < by_hand; ++i) (void)sys::run_command({"ip", "netns", "del", prefix + std::to_string(i)}, std::chrono::seconds(10));
  router->leave();
  std::filesystem::remove_all(directory);
  return 0;
}
