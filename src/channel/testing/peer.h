// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/async.h"
#include "base/unique_fd.h"
#include "channel/frame.h"

// What tests of the daemon's side of a channel share: a loop, and an agent that does what the test says.
namespace glovebox::channel::testing {

// A loop thread's loop, run by the test.
class TestLoop {
 public:
  TestLoop();
  ~TestLoop();  // drops what still waits
  Executor executor();
  // Runs until the coroutine has ended; aborts the process when that takes longer than `patience`.
  void run(Awaitable<void> task, std::chrono::milliseconds patience = std::chrono::seconds(200));

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns when `is_true` says so, false when it does not within `patience`.
Awaitable<bool> eventually(std::function<bool()> is_true, std::chrono::milliseconds patience = std::chrono::seconds(60));

// The agent's ends of a channel.
class Peer {
 public:
  // A pair of pipes: the peer on one side; the daemon's ends (to the agent, from the agent) are taken once.
  Peer();
  std::pair<UniqueFd, UniqueFd> take_daemon_ends() { return {std::move(to_agent_), std::move(from_agent_)}; }

  // Copies of them, for an agent that outlives daemons.
  std::pair<UniqueFd, UniqueFd> copy_daemon_ends() const;

  // The daemon's next message; nothing when none comes in time or the daemon has closed its end.
  Awaitable<std::optional<Frame>> next(std::chrono::milliseconds patience = std::chrono::seconds(60));
  // The next message of this type; others are skipped.
  Awaitable<std::optional<Frame>> next_of(Type type, std::chrono::milliseconds patience = std::chrono::seconds(60));
  // Writes all of it; false when the daemon has closed its end.
  Awaitable<bool> write(std::string bytes);
  Awaitable<bool> send(uint32_t channel, Type type, std::string payload);
  // Waits for HELLO and answers it; `executions` is the JSON array of HELLO_OK.
  Awaitable<bool> shake_hands(std::string executions = "[]");

  void close_input() { input_.reset(); }
  void close_output() { output_.reset(); }

 private:
  UniqueFd to_agent_, from_agent_;  // the daemon's
  UniqueFd input_, output_;
  Decoder decoder_{kMaxPayloadToAgent, kMaxMessageToAgent};
};

std::string u64(uint64_t value);
std::string frame(uint32_t channel, Type type, std::string_view payload, uint8_t flags = 0);
// What answers a HELLO with this payload: SYNC and HELLO_OK.
std::string hello_answer(std::string_view hello, std::string_view executions);

}  // namespace glovebox::channel::testing
