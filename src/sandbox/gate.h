// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "base/async.h"

namespace glovebox::sandbox {

// Lets so many in at a time; more wait in order of arrival. Loop thread only.
class Gate : public std::enable_shared_from_this<Gate> {
 public:
  explicit Gate(int places) : free_(places) {}

  // Leaves when it goes, also after the gate's maker: at shutdown what is inside outlives the
  // manager.
  class Place {
   public:
    explicit Place(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
    Place(Place&&) noexcept = default;
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (!gate_) return;
      ++gate_->free_;
      gate_->changed_.notify();
    }

   private:
    std::shared_ptr<Gate> gate_;
  };
  // Empty when no place came free in time.
  Awaitable<std::optional<Place>> enter(Deadline deadline = Deadline::max()) {
    const auto self = shared_from_this();
    {
      const Turn turn(*this);
      while (!turn.has_come()) {
        const bool is_woken = co_await changed_.wait_until(deadline);
        if (!is_woken && !turn.has_come()) co_return std::nullopt;
      }
      --free_;
    }
    co_return Place(self);
  }

 private:
  // In the queue, as long as it lives: who comes back at once comes behind those who wait.
  class Turn {
   public:
    explicit Turn(Gate& gate) : gate_(gate), at_(gate.queue_.insert(gate.queue_.end(), 0)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      gate_.queue_.erase(at_);
      gate_.changed_.notify();
    }
    bool has_come() const { return gate_.free_ > 0 && gate_.queue_.begin() == at_; }

   private:
    Gate& gate_;
    std::list<int>::iterator at_;
  };

  int free_;
  std::list<int> queue_;
  Notifier changed_;
};

}  // namespace glovebox::sandbox
