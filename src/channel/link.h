// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <memory>
#include <string>

#include "base/async.h"
#include "base/unique_fd.h"
#include "channel/frame.h"

// The daemon's end of one sandbox's channel (spec/channel.md). Loop thread only.
namespace glovebox::channel {

// Gets the frames of one channel number. It unregisters itself (Link::close) before it goes.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void on_frame(Frame& frame) = 0;
  // The link is gone; no frame follows and the channel is closed already.
  virtual void on_lost(const Error& error) = 0;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  // Takes the pipe ends, non-blocking. `on_lost` runs at most once: the pipe ended or the agent broke the protocol.
  static std::shared_ptr<Link> create(const Executor& executor, UniqueFd to_agent, UniqueFd from_agent,
                                      std::function<void(const Error&)> on_lost);
  ~Link();

  // Synchronises and introduces us; `hello` is the JSON object of HELLO without `version` and `nonce`. Returns the JSON of HELLO_OK.
  // Once per link, before anything else.
  Async<std::string> hello(std::string hello_fields, Deadline deadline);

  // A new channel number whose frames go to `receiver`.
  uint32_t open(Receiver* receiver);
  // `under_way`: how many bytes of the agent's may still come on it; they are ignored, more is a breach of the protocol.
  void close(uint32_t channel, uint64_t under_way = 0);
  // Queues a message of at most kMaxMessageToAgent. An agent that takes nothing for a minute while something is queued, or
  // leaves 16 MiB, loses its link.
  void send(uint32_t channel, Type type, std::string_view payload);
  // Returns when less than 1 MiB is queued: for messages that callers cause and that no window bounds. kTimeout at the deadline.
  Async<void> wait_room(Deadline deadline);
  // Ends the link as if the pipe had ended: every receiver hears `error`.
  void drop(const Error& error);
  bool is_lost() const;

  // Returns when the agent has read all that was sent and everything it sent has been taken; from then on neither side writes, until
  // go_on(), which must follow also when this fails, or the next connection. So nothing is under way while the sandbox is copied.
  Async<void> hold_still(Deadline deadline);
  // How long the sandbox stood still meanwhile, by its own clock.
  Async<std::chrono::microseconds> go_on(Deadline deadline);

  void ping();
  // When the agent was last heard; touch() counts as hearing it (it could not speak before).
  Clock::time_point last_heard() const;
  void touch();

  // REQUEST with this JSON object and its one RESPONSE, whose JSON is returned; `ok: false` becomes the error it names.
  Async<std::string> request(std::string json, Deadline deadline);

 private:
  struct Impl;
  explicit Link(std::unique_ptr<Impl> impl);
  static Awaitable<void> read_loop(std::weak_ptr<Link> weak);
  static Awaitable<void> write_loop(std::weak_ptr<Link> weak);
  Async<std::string> still_answer(Deadline deadline);
  void release();
  void start_writing();
  static Awaitable<void> watch_stall(std::weak_ptr<Link> weak);
  static Awaitable<void> drop_later(std::weak_ptr<Link> weak, Error error);
  std::unique_ptr<Impl> impl_;
};

// The error in a FAILED, RESPONSE or END payload. A code that an agent has no business to use (it could say "unauthenticated")
// becomes kAgentProtocol.
Error error_from_agent(std::string_view json);

// A REQUEST that moves bulk bytes: read, write, tar_in, tar_out, dial. Each direction has its window.
class Transfer : public Receiver {
 public:
  // Two-way: the agent's END is a half close (dial), after which its windows, and an END that tells why it broke off, may follow.
  enum class Kind { kOneWay, kTwoWay };
  explicit Transfer(std::shared_ptr<Link> link, Kind kind = Kind::kOneWay) : link_(std::move(link)), kind_(kind) {}
  ~Transfer() override;  // cancels what is not finished

  // Sends the request and waits for its first RESPONSE; returns its JSON. kPayloadTooLarge beyond kMaxMessageToAgent.
  Async<std::string> start(std::string json, Deadline deadline);
  // The same in two steps: what is written between them is sent without waiting for the RESPONSE. At most a window.
  Async<void> begin(std::string json, Deadline deadline);
  Async<std::string> accepted(Deadline deadline) { return next_response(deadline); }
  // The same for a request that ends with its one RESPONSE.
  Async<std::string> ask(std::string json, Deadline deadline);
  // The next bytes; empty at the end. Waits at most `idle` for the agent.
  Async<std::string> read(std::chrono::milliseconds idle);
  // Returns when all of it fits the window and is queued.
  Async<void> write(std::string_view data, std::chrono::milliseconds idle);
  void end();  // no more from us
  // Gives it up now: the agent is told, and calls under way fail with kCancelled.
  void abort();
  // After end(): the final RESPONSE's JSON.
  Async<std::string> finish(Deadline deadline);

  void on_frame(Frame& frame) override;
  void on_lost(const Error& error) override;

 private:
  Async<std::string> next_response(Deadline deadline);
  void fail_with(Error error);
  void take_data(std::string& data);
  void take_window(const std::string& payload);
  void broke_protocol(std::string message);

  std::shared_ptr<Link> link_;
  Kind kind_;
  uint32_t channel_ = 0;                            // 0: not open
  Notifier changed_;
  std::deque<std::string> responses_;
  int responses_seen_ = 0;
  std::string inbox_;
  bool remote_ended_ = false;                       // the agent has said its last
  bool ended_well_ = false;                         // and nothing that follows takes back what was sent before
  uint64_t received_ = 0, consumed_ = 0, granted_ = kWindowBytes;  // agent to us
  uint64_t sent_ = 0, allowed_ = kWindowBytes;                     // us to agent
  std::optional<Error> failure_;
};

}  // namespace glovebox::channel
