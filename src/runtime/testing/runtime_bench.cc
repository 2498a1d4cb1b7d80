// SPDX-License-Identifier: Apache-2.0
// Prints the median and 95th percentile of each step of a sandbox's life, per tier: runtime_bench
// [count].
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "runtime/testing/harness.h"

namespace {

using namespace glovebox;
using namespace glovebox::runtime;

class Table {
 public:
  void add(const std::string& step, std::chrono::microseconds time) {
    if (!times_.contains(step)) order_.push_back(step);
    times_[step].push_back(time.count());
  }
  void print() {
    std::printf("  %-28s %9s %9s   (ms)\n", "step", "p50", "p95");
    for (const auto& step : order_) {
      auto& values = times_[step];
      std::sort(values.begin(), values.end());
      auto at = [&](double share) {
        return static_cast<double>(
                   values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))]) /
               1000;
      };
      std::printf("  %-28s %9.2f %9.2f\n", step.c_str(), at(0.5), at(0.95));
    }
  }

 private:
  std::vector<std::string> order_;
  std::map<std::string, std::vector<long>> times_;
};

class Watch {
 public:
  explicit Watch(Table* table) : table_(table) {}
  void done(const std::string& step) {
    auto now = Clock::now();
    table_->add(step, std::chrono::duration_cast<std::chrono::microseconds>(now - last_));
    last_ = now;
  }
  void restart() { last_ = Clock::now(); }

 private:
  Table* table_;
  Clock::time_point last_ = Clock::now();
};

bool run_one(testing::Host& host, const std::string& id, Table* table) {
  auto spec = host.spec(id);
  Watch watch(table);
  auto planned = host.runtime().plan(spec);
  watch.done("plan");
  auto started = host.runtime().start(spec, planned, after(std::chrono::seconds(30)));
  if (!started) {
    std::printf("  start failed: %s\n", started.error().message.c_str());
    return false;
  }
  for (const auto& [step, time] : started->steps) table->add("  start: " + step, time);
  watch.done("start (whole)");
  bool ok = testing::shake_hands(started->channel).has_value();
  watch.done("first answer");
  ok = ok && host.runtime().freeze(started->record).has_value();
  watch.done("freeze");
  ok = ok && host.runtime().thaw(started->record).has_value();
  watch.done("thaw");
  ok = ok && testing::shake_hands(started->channel).has_value();
  watch.done("answer after thaw");
  ok = ok && host.runtime().usage(started->record).has_value();
  watch.done("usage");
  ok = host.runtime().destroy(started->record).has_value() && ok;
  watch.done("destroy");
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  int count = argc > 1 ? std::atoi(argv[1]) : 30;
  for (Tier tier : {Tier::kContainer, Tier::kGvisor}) {
    std::string problem = testing::why_not(tier);
    std::printf("%s%s%s\n", std::string(tier_name(tier)).c_str(),
                problem.empty() ? "" : ": skipped: ", problem.c_str());
    if (!problem.empty()) continue;
    testing::Host host(tier);
    Table table;
    for (int i = 0; i < count; ++i) {
      if (!run_one(host, "bench-" + std::to_string(i), &table)) return 1;
    }
    table.print();
  }
  return 0;
}
