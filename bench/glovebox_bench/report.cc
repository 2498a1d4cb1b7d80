// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace glovebox::bench {
namespace {

// The tail is the bad side: long times, low rates.
std::string summary(const Samples& samples, bool more_is_better) {
  if (samples.empty()) return "null";
  const auto at = [&](double share) {
    return percentile(samples, more_is_better ? 1 - share : share);
  };
  char text[160];
  std::snprintf(text, sizeof text, R"({"n":%zu,"p50":%.5g,"p95":%.5g,"p99":%.5g})", samples.size(),
                at(0.50), at(0.95), at(0.99));
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
  const bool more_is_better = row.unit.ends_with("/s");
  out += ",\"ours\":" + summary(row.ours, more_is_better) +
         ",\"theirs\":" + summary(row.theirs, more_is_better) + "}";
  std::printf("%s\n", out.c_str());
  std::fflush(stdout);
}

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace glovebox::bench
