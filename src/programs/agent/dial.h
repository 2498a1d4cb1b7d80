// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "programs/agent/inbox.h"
#include "programs/agent/json.h"
#include "programs/agent/loop.h"
#include "programs/agent/outbox.h"

namespace glovebox::agent {

// The `dial` requests: TCP connections that the agent opens inside the sandbox, with a window in
// each direction. Loop thread.
class Dials {
 public:
  Dials(Loop& loop, Outbox& outbox) : loop_(loop), outbox_(outbox) {}

  // The answer comes later, on the channel, unless this fails.
  Result<void> open(uint32_t channel, const json::object& fields);
  void handle(Inbox::Message& message);
  void pump();  // the outbox has room again
  void clear();

 private:
  static constexpr size_t kMaxDials = 1024;
  struct Dial {
    uint32_t channel = 0;
    std::deque<sockaddr_in6> addresses;  // still to be tried; IPv4 in its own form
    UniqueFd fd;
    Loop::TimerId timer;
    bool connected = false;
    bool read_ended = false;   // the peer's end of file is sent
    bool write_ended = false;  // the daemon has sent END
    bool shut = false;         // and it is passed on
    std::string output;        // from the daemon, not yet in the socket
    size_t output_at = 0;
    uint64_t received = 0, granted = channel::kWindowBytes;
    uint64_t sent = 0, allowed = channel::kWindowBytes;
  };
  void connect_next(Dial& dial, int last_error);
  void on_ready(uint32_t channel, uint32_t events);
  void on_connected(Dial& dial);
  bool read_some(Dial& dial);
  bool write_some(Dial& dial);
  void update(Dial& dial);
  bool may_read(const Dial& dial) const;
  void break_off(Dial& dial, const std::string& what, int error);
  void remove(uint32_t channel);
  Dial* find(uint32_t channel);

  Loop& loop_;
  Outbox& outbox_;
  std::unordered_map<uint32_t, std::unique_ptr<Dial>> dials_;
};

}  // namespace glovebox::agent
