// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

// Numbers for Prometheus (text format 0.0.4). A metric is found or made once by name and labels and then kept by reference: counting
// is one atomic addition, from any thread. Label values are bounded sets of our own (tiers, reasons, route patterns), never
// anything a caller sent.
namespace glovebox::metrics {

using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Seconds, in fixed buckets from 0.5 ms to 60 s.
class Histogram {
 public:
  Histogram();
  void observe(double seconds);
  static const std::vector<double>& bounds();
  uint64_t bucket(size_t i) const { return buckets_[i].load(std::memory_order_relaxed); }  // not cumulative
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<std::atomic<uint64_t>> buckets_;
  std::atomic<double> sum_{0};
};

class Registry {
 public:
  // The same name must come with the same kind and help each time. Names end in their unit: glovebox_create_seconds.
  Counter& counter(const std::string& name, const std::string& help, Labels labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, Labels labels = {});
  // A gauge is asked when the page is made, on the thread that makes it.
  using Samples = std::vector<std::pair<Labels, double>>;
  void gauge(const std::string& name, const std::string& help, std::function<Samples()> samples);

  std::string text() const;

 private:
  struct Family {
    std::string help, type;
    std::map<Labels, std::unique_ptr<Counter>> counters;
    std::map<Labels, std::unique_ptr<Histogram>> histograms;
    std::function<Samples()> gauge;
  };
  Family& family(const std::string& name, const std::string& help, const std::string& type);

  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;
};

// The process's own.
Registry& registry();

}  // namespace glovebox::metrics
