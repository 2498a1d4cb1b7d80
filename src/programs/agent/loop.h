// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"

namespace glovebox::agent {

using SteadyTime = std::chrono::steady_clock::time_point;

// The agent's one event loop: descriptors (level-triggered), timers, and work posted by other
// threads. Everything but post() belongs to the loop's thread.
class Loop {
 public:
  using OnReady = std::function<void(uint32_t events)>;
  using TimerId = std::pair<SteadyTime, uint64_t>;

  Loop();

  // Calls `on_ready` while any of `events` (EPOLLIN, EPOLLOUT) is there. Events 0: known, but not
  // looked at, not even for a hang-up. The descriptor stays the caller's, who calls unwatch()
  // before closing it.
  void watch(int fd, uint32_t events, OnReady on_ready);
  void change(int fd, uint32_t events);
  void unwatch(int fd);

  TimerId at(SteadyTime when, std::function<void()> work);
  TimerId in(std::chrono::milliseconds delay, std::function<void()> work);
  void cancel(TimerId timer);

  void post(std::function<void()> work);  // any thread
  // `work` runs after each round that had events, before sleeping again.
  void after_round(std::function<void()> work) { after_round_ = std::move(work); }

  [[noreturn]] void run();

 private:
  struct Watch {
    uint32_t generation = 0;
    uint32_t events = 0;
    std::shared_ptr<OnReady> on_ready;
  };
  void round();
  int timeout() const;
  void run_timers();
  void run_posted();
  void apply(int fd, Watch& watch, uint32_t events);

  UniqueFd epoll_;
  UniqueFd wake_;
  uint32_t next_generation_ = 1;
  std::unordered_map<int, Watch> watches_;
  std::map<TimerId, std::function<void()>> timers_;
  uint64_t next_timer_ = 1;
  std::function<void()> after_round_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace glovebox::agent
