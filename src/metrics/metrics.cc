// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/result.h"

namespace glovebox::metrics {
namespace {

std::string number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<int64_t>(value));
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

void append_escaped(std::string& out, std::string_view value) {
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
}

std::string label_text(const Labels& labels, const std::string& le = {}) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += (out.empty() ? "{" : ",") + name + "=\"";
    append_escaped(out, value);
    out += '"';
  }
  if (!le.empty()) out += (out.empty() ? "{le=\"" : ",le=\"") + le + '"';
  return out.empty() ? out : out + "}";
}

void append_histogram(std::string& out, const std::string& name, const Labels& labels, const Histogram& histogram) {
  uint64_t total = 0;
  const auto& bounds = Histogram::bounds();
  for (size_t i = 0; i <= bounds.size(); ++i) {
    total += histogram.bucket(i);
    const std::string le = i == bounds.size() ? "+Inf" : number(bounds[i]);
    out += name + "_bucket" + label_text(labels, le) + " " + std::to_string(total) + "\n";
  }
  out += name + "_sum" + label_text(labels) + " " + number(histogram.sum()) + "\n";
  out += name + "_count" + label_text(labels) + " " + std::to_string(total) + "\n";
}

}  // namespace

const std::vector<double>& Histogram::bounds() {
  static const std::vector<double> kBounds{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
  return kBounds;
}

Histogram::Histogram() : buckets_(bounds().size() + 1) {}

void Histogram::observe(double seconds) {
  const auto at = std::lower_bound(bounds().begin(), bounds().end(), seconds) - bounds().begin();
  buckets_[static_cast<size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  double sum = sum_.load(std::memory_order_relaxed);
  while (!sum_.compare_exchange_weak(sum, sum + seconds, std::memory_order_relaxed)) {
  }
}

Registry::Family& Registry::family(const std::string& name, const std::string& help, const std::string& type) {
  Family& f = families_[name];
  GB_ASSERT(f.type.empty() || f.type == type);
  f.type = type;
  f.help = help;
  return f;
}

Counter& Registry::counter(const std::string& name, const std::string& help, Labels labels) {
  const std::lock_guard lock(mutex_);
  auto& slot = family(name, help, "counter").counters[std::move(labels)];
  if (!slot) slot = std::make_unique<Counter>();
  return *slot;
}

Histogram& Registry::histogram(const std::string& name, const std::string& help, Labels labels) {
  const std::lock_guard lock(mutex_);
  auto& slot = family(name, help, "histogram").histograms[std::move(labels)];
  if (!slot) slot = std::make_unique<Histogram>();
  return *slot;
}

void Registry::gauge(const std::string& name, const std::string& help, std::function<Samples()> samples) {
  const std::lock_guard lock(mutex_);
  family(name, help, "gauge").gauge = std::move(samples);
}

std::string Registry::text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, f] : families_) {
    out += "# HELP " + name + " " + f.help + "\n# TYPE " + name + " " + f.type + "\n";
    for (const auto& [labels, counter] : f.counters) out += name + label_text(labels) + " " + std::to_string(counter->value()) + "\n";
    for (const auto& [labels, histogram] : f.histograms) append_histogram(out, name, labels, *histogram);
    if (!f.gauge) continue;
    for (const auto& [labels, value] : f.gauge()) out += name + label_text(labels) + " " + number(value) + "\n";
  }
  return out;
}

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace glovebox::metrics
