// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "sandbox/testing/fake_runtime.h"

namespace glovebox::sandbox::testing {

// An agent that keeps spec/channel.md, with commands in place of programs:
//   exit N · signal N · print TEXT · flood BYTES (then exits 0) · hang (until KILL) · serve TEXT (prints it and hangs) · fail CODE · never (no answer at all)
// It is the sandbox's, not the daemon's: executions outlive connections.
class FakeAgent {
 public:
  // Gets every frame first; true: it was handled (or mishandled) there.
  using Intercept = std::function<Awaitable<bool>(channel::testing::Peer&, channel::Frame&)>;
  explicit FakeAgent(std::shared_ptr<FakeBox> box, Intercept intercept = {}) : box_(std::move(box)), intercept_(std::move(intercept)) {}

  Awaitable<void> run();
  const std::shared_ptr<FakeBox>& box() const { return box_; }

  struct Running {
    std::string id;
    uint32_t channel = 0;
    std::string out;               // from `start` on
    uint64_t start = 0, sent = 0;  // offsets of stdout
    uint64_t left = 0;             // bytes that `flood` has still to write
    uint64_t dropped = 0;
    bool drained = false, exited = false, exit_told = false, forgotten = false;
    std::string outcome;           // how it will end, JSON fields
    uint64_t end() const { return start + out.size() + dropped; }
  };
  std::map<std::string, Running> executions;
  std::map<std::string, int> seen;  // frames by what they were: "exec", "request", "kill", "forget", "attach", …

 private:
  Awaitable<void> handle(channel::Frame& frame);
  Awaitable<void> start(uint32_t channel, const std::string& payload);
  Awaitable<void> attach(uint32_t channel, const std::string& payload);
  Awaitable<void> push(Running& running);
  std::string hello_list() const;
  Running* of_channel(uint32_t channel);

  std::shared_ptr<FakeBox> box_;
  Intercept intercept_;
};

// The string or number of a field in a flat JSON object.
std::string json_text(const std::string& json, const std::string& name);

}  // namespace glovebox::sandbox::testing
