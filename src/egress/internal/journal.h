// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/async.h"
#include "policy/egress.h"

namespace glovebox::egress {

// One entry of the connection log. Text that came from a sandbox is cut to a bounded length when it
// is written.
struct Event {
  std::string_view kind = "connection";  // "connection", "dns", "packet", "request"
  std::string flow;
  std::string_view protocol = "tcp";
  std::string host, address;
  uint16_t port = 0;
  std::string_view verdict = "denied";  // "allowed", "denied", "failed"
  std::string rule, reason, how_to_allow;
  uint64_t bytes_out = 0, bytes_in = 0;
  std::string_view phase;  // "open", "close", ""
  std::string method, path, query_type;
};

// Copies what decided into an event.
void set_verdict(Event& event, const policy::Verdict& verdict);
void set_failed(Event& event, const policy::Verdict& verdict, std::string reason);

// Entries of one sandbox in the current second.
struct EventRate {
  Clock::time_point begin{};
  uint64_t written = 0, folded = 0;
  bool has_folded_denial = false;
};

// Writes events to the control stream. At most kPerSecond for a sandbox; those above are counted
// and reported in one entry with "folded": N and rule "limit:log", whose verdict is "denied" when
// one of them was.
class Journal {
 public:
  static constexpr uint64_t kPerSecond = 200;
  explicit Journal(std::function<void(std::string line)> write);
  // `rate` is the sandbox's own. Closing entries are never folded: they complete one that was
  // written.
  void record(const std::string& sandbox, EventRate& rate, const Event& event);
  // Reports what was folded when the second is over. Call now and then.
  void flush(const std::string& sandbox, EventRate& rate);
  std::string next_flow();

 private:
  std::function<void(std::string)> write_;
  std::string prefix_;
  uint64_t flows_ = 0;
};

}  // namespace glovebox::egress
