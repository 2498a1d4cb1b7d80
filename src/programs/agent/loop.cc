// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/result.h"

namespace glovebox::agent {

Loop::Loop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  GB_ASSERT(epoll_ && wake_);
  watch(wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof count);
    run_posted();
  });
}

void Loop::apply(int fd, Watch& watch, uint32_t events) {
  if (watch.events == events) return;
  epoll_event event = {};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(watch.generation) << 32 | static_cast<uint32_t>(fd);
  const int op = watch.events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  GB_ASSERT(::epoll_ctl(epoll_.get(), op, fd, &event) == 0);
  watch.events = events;
}

void Loop::watch(int fd, uint32_t events, OnReady on_ready) {
  Watch& entry = watches_[fd];
  GB_ASSERT(entry.on_ready == nullptr);
  entry.generation = next_generation_++;
  entry.on_ready = std::make_shared<OnReady>(std::move(on_ready));
  apply(fd, entry, events);
}

void Loop::change(int fd, uint32_t events) {
  auto found = watches_.find(fd);
  if (found != watches_.end()) apply(fd, found->second, events);
}

void Loop::unwatch(int fd) {
  auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  apply(fd, found->second, 0);
  watches_.erase(found);
}

Loop::TimerId Loop::at(SteadyTime when, std::function<void()> work) {
  const TimerId id{when, next_timer_++};
  timers_.emplace(id, std::move(work));
  return id;
}

Loop::TimerId Loop::in(std::chrono::milliseconds delay, std::function<void()> work) {
  return at(std::chrono::steady_clock::now() + delay, std::move(work));
}

void Loop::cancel(TimerId timer) {
  timers_.erase(timer);
}

void Loop::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    if (posted_.size() > 1) return;  // the wake-up for the first is still under way
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

void Loop::run_posted() {
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (auto& item : work) item();
}

int Loop::timeout() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first.first - std::chrono::steady_clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 3600 * 1000));
}

void Loop::run_timers() {
  const auto now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto work = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    work();
  }
}

void Loop::round() {
  std::array<epoll_event, 64> events;
  const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout());
  GB_ASSERT(n >= 0 || errno == EINTR);
  for (int i = 0; i < n; ++i) {
    const uint64_t key = events[static_cast<size_t>(i)].data.u64;
    auto found = watches_.find(static_cast<int>(key & 0xFFFFFFFF));
    if (found == watches_.end() || found->second.generation != key >> 32) continue;
    if (found->second.events == 0) continue;
    const auto on_ready = found->second.on_ready;  // it may unwatch itself
    (*on_ready)(events[static_cast<size_t>(i)].events);
  }
  run_timers();
  if (n > 0 && after_round_) after_round_();
}

void Loop::run() {
  for (;;) round();
}

}  // namespace glovebox::agent
