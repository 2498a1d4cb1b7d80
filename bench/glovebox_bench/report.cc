// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace glovebox::bench {
namespace {

std::string summary(const Samples& samples) {
  if (samples.empty()) return "null";
  char text[160];
  std::snprintf(text, sizeof text, R"({"n":%zu,"p50":%.5g,"p95":%.5g,"p99":%.5g,"min":%.5g})",
                samples.size(), percentile(samples, 0.50), percentile(samples, 0.95),
                percentile(samples, 0.99), percentile(samples, 0));
  return text;
}

void field(std::string& out, const char* name, const std::string& value) {
  out += out.empty() ? "{\"" : ",\"";
  out += name;
  out += "\":";
  append_json_string(out, value);
}

}  // namespace

double percentile(Samples samples, double share) {
  GB_ASSERT(!samples.empty());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(samples.size())));
  const size_t index = rank > 0 ? rank - 1 : 0;
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index),
                   samples.end());
  return samples[index];
}

void print(const Row& row) {
  std::string out;
  field(out, "group", row.group);
  field(out, "what", row.what);
  field(out, "unit", row.unit);
  field(out, "peer", row.peer);
  field(out, "why_no_peer", row.why_no_peer);
  field(out, "target", row.target);
  out += ",\"ours\":" + summary(row.ours) + ",\"theirs\":" + summary(row.theirs) + "}";
  std::printf("%s\n", out.c_str());
  std::fflush(stdout);
}

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace glovebox::bench
