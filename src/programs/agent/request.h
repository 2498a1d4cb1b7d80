// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "programs/agent/json.h"
#include "programs/agent/outbox.h"

namespace glovebox::agent {

// One REQUEST and its channel: written to by the worker that serves it, fed by the loop.
class Request {
 public:
  Request(Outbox& outbox, uint64_t connection, uint32_t channel, json::object fields)
      : outbox_(outbox), connection_(connection), channel_(channel), fields_(std::move(fields)) {}

  uint32_t channel() const { return channel_; }
  const json::object& fields() const { return fields_; }

  // ---- The worker's side; these block. ----
  // RESPONSE {ok: true, …}.
  Result<void> respond(json::object object);
  // From now on an error is told by END.
  void begin_data() { data_begun_ = true; }
  Result<void> send_data(std::string_view bytes);  // waits for the daemon's window; kCancelled
  Result<void> end_data();
  // The next piece of the daemon's data; nullopt at its END; kCancelled.
  Result<std::optional<std::string>> receive();
  void fail(const Error& error);
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  // ---- The loop's side ----
  void on_data(std::string bytes);
  void on_end();
  void on_window(uint64_t total);
  void cancel();
  // An eventfd that cancel() makes readable, for a worker that waits for something else; -1: none.
  void ring_when_cancelled(int fd);

 private:
  Result<uint64_t> wait_for_window();
  Result<void> send(channel::Type type, std::string_view message);

  Outbox& outbox_;
  const uint64_t connection_;
  const uint32_t channel_;
  const json::object fields_;
  bool data_begun_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> cancelled_{false};
  std::deque<std::string> input_;
  bool input_ended_ = false;
  int bell_ = -1;
  uint64_t received_ = 0, granted_ = channel::kWindowBytes;  // towards us
  uint64_t sent_ = 0, allowed_ = channel::kWindowBytes;      // from us
};

}  // namespace glovebox::agent
