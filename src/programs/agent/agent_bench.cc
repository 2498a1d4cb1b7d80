// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "programs/agent/test_agent.h"

// Prints what one execution costs through the agent, EXEC to EXITED, on each engine that works
// here. Not a test.
namespace glovebox::agent {
namespace {

using channel::Type;
using Micros = std::chrono::duration<double, std::micro>;

void print_row(const char* what, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  auto at = [&](double part) {
    return samples[static_cast<size_t>(part * static_cast<double>(samples.size() - 1))] / 1000;
  };
  std::printf("  %-28s median %6.2f ms   p10 %6.2f   p90 %6.2f   n %zu\n", what, at(0.5), at(0.1),
              at(0.9), samples.size());
}

template <class Work>
std::vector<double> measure(int count, Work work) {
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    samples.push_back(Micros(std::chrono::steady_clock::now() - start).count());
  }
  return samples;
}

void bench(Engine engine, const char* name, int count) {
  const std::string problem = TestAgent::unusable(engine);
  if (!problem.empty()) {
    std::printf("%s: %s\n", name, problem.c_str());
    return;
  }
  TestAgent agent(engine);
  agent.hello();
  std::printf("%s\n", name);
  print_row("ping", measure(count, [&] {
              agent.send(0, Type::kPing, "x");
              agent.receive(0);
            }));
  const struct {
    const char* what;
    json::object request;
  } rows[] = {{"exec, static program", {{"argv", {"/sbin/static-true"}}}},
              {"exec, /bin/true (dynamic)", {{"argv", {"/bin/true"}}}},
              {"exec, sh -c", {{"command", "exit 0"}}},
              {"exec, pty", {{"argv", {"/sbin/static-true"}}, {"pty", json::object()}}}};
  for (const auto& row : rows) {
    print_row(row.what, measure(count, [&] {
                const uint32_t channel = agent.exec(row.request);
                while (true) {
                  const auto type = agent.receive(channel).type;
                  if (type == Type::kExited || type == Type::kPing) break;
                }
                agent.send(channel, Type::kForget);
              }));
  }
  print_row("stat",
            measure(count, [&] { agent.request({{"op", "stat"}, {"path", "/etc/passwd"}}); }));
}

}  // namespace
}  // namespace glovebox::agent

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 300;
  glovebox::agent::bench(glovebox::agent::Engine::kNamespaces, "namespaces", count);
  glovebox::agent::bench(glovebox::agent::Engine::kRunsc, "runsc", count);
}
