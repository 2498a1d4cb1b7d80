// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace glovebox {

// Undo steps of an operation that is made of several. They run in reverse order when it goes out of scope without
// dismiss(). A step must not throw and logs what it could not undo.
class Rollback {
 public:
  Rollback() = default;
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  ~Rollback() {
    while (!steps_.empty()) {
      auto step = std::move(steps_.back());
      steps_.pop_back();
      step();
    }
  }
  void add(std::function<void()> step) { steps_.push_back(std::move(step)); }
  void dismiss() { steps_.clear(); }

 private:
  std::vector<std::function<void()>> steps_;
};

}  // namespace glovebox
