// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/async.h"

namespace glovebox::api::mcp {

// What goes back to the sender of one POST: a response for each of its requests, and before them what is to be told of those
// under way. It outlives the connection it was begun on, so that a client whose connection broke can come back for the rest. Loop
// thread only.
class Stream {
 public:
  struct Entry {
    uint64_t number = 0;  // 1, 2, …; part of the event's id
    std::string text;
    bool is_response = false;
  };

  Stream(std::string id, size_t requests) : id_(std::move(id)), open_requests_(requests) {}
  const std::string& id() const { return id_; }

  void notify(std::string text);   // dropped when the client takes nothing and too many wait
  void respond(std::string text);  // one request has its response
  void drop_response();            // a cancelled one has none
  bool is_complete() const { return open_requests_ == 0; }
  void abandon();  // the session is over: nothing more comes

  // The first after `number`; null: there is none yet. Good until the next suspension.
  const Entry* next(uint64_t number) const;
  bool has_only_responses() const;
  size_t bytes() const { return bytes_; }
  bool is_kept = false;  // Sessions has it on its list
  // True when something was added or the stream was completed since, false at the deadline.
  Awaitable<bool> wait(Deadline deadline) { return changed_.wait_until(deadline); }

 private:
  void add(std::string text, bool is_response);

  const std::string id_;
  size_t open_requests_;
  std::deque<Entry> entries_;
  uint64_t last_ = 0;
  size_t bytes_ = 0;
  Notifier changed_;
};
using StreamPtr = std::shared_ptr<Stream>;

// "<stream>.<number>", the id of an event.
std::string event_id(const Stream& stream, uint64_t number);
struct EventPlace {
  std::string stream;
  uint64_t number = 0;
};
std::optional<EventPlace> parse_event_id(std::string_view text);

}  // namespace glovebox::api::mcp
