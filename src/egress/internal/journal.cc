// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/journal.h"

#include <utility>

#include "base/random.h"
#include "base/text.h"

namespace glovebox::egress {
namespace {

constexpr size_t kMaxText = 512;

class Line {
 public:
  explicit Line(const std::string& sandbox) : out_(R"({"op":"event","time_ms":)") {
    out_ += std::to_string(unix_millis(std::chrono::system_clock::now()));
    text("sandbox", sandbox);
  }
  void text(std::string_view name, std::string_view value) {
    key(name);
    append_json_string(out_, value.substr(0, kMaxText));
  }
  void optional(std::string_view name, std::string_view value) {
    if (!value.empty()) text(name, value);
  }
  void number(std::string_view name, uint64_t value) {
    key(name);
    out_ += std::to_string(value);
  }
  std::string end() { return std::move(out_) + "}\n"; }

 private:
  void key(std::string_view name) {
    out_ += ",\"";
    out_ += name;
    out_ += "\":";
  }
  std::string out_;
};

std::string line_of(const std::string& sandbox, const Event& event, uint64_t folded) {
  Line line(sandbox);
  line.text("kind", event.kind);
  line.text("flow", event.flow);
  line.text("protocol", event.protocol);
  line.text("host", event.host);
  line.text("address", event.address);
  line.number("port", event.port);
  line.text("verdict", event.verdict);
  line.text("rule", event.rule);
  line.text("reason", event.reason);
  line.number("bytes_out", event.bytes_out);
  line.number("bytes_in", event.bytes_in);
  line.text("phase", event.phase);
  line.optional("method", event.method);
  line.optional("path", event.path);
  line.optional("query_type", event.query_type);
  line.optional("how_to_allow", event.how_to_allow);
  if (folded > 0) line.number("folded", folded);
  return line.end();
}

}  // namespace

void set_verdict(Event& event, const policy::Verdict& verdict) {
  event.verdict = verdict.allowed ? "allowed" : "denied";
  event.rule = verdict.rule;
  event.reason = verdict.reason;
  if (!verdict.allowed) event.how_to_allow = verdict.how_to_allow;
}

void set_failed(Event& event, const policy::Verdict& verdict, std::string reason) {
  event.verdict = "failed";
  event.rule = verdict.rule;
  event.reason = std::move(reason);
}

Journal::Journal(std::function<void(std::string)> write)
    : write_(std::move(write)), prefix_(random_name(6)) {}

std::string Journal::next_flow() {
  return prefix_ + "-" + std::to_string(++flows_);
}

void Journal::record(const std::string& sandbox, EventRate& rate, const Event& event) {
  flush(sandbox, rate);
  if (rate.written >= kPerSecond && event.phase != "close") {
    ++rate.folded;
    if (event.verdict == "denied") rate.has_folded_denial = true;
    return;
  }
  ++rate.written;
  write_(line_of(sandbox, event, 0));
}

void Journal::flush(const std::string& sandbox, EventRate& rate) {
  const auto now = Clock::now();
  if (now - rate.begin < std::chrono::seconds(1)) return;
  const auto before = std::exchange(rate, {now});
  if (before.folded == 0) return;
  Event event;
  event.protocol = "other";
  event.verdict = before.has_folded_denial ? "denied" : "allowed";
  event.rule = "limit:log";
  event.reason =
      std::to_string(before.folded) + " more entries within a second were not written one by one";
  write_(line_of(sandbox, event, before.folded));
}

}  // namespace glovebox::egress
