// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/async.h"

namespace glovebox::sandbox {

// One thing that is done beside others. It goes on when this is gone: what it uses is its own. Loop
// thread only.
class Beside {
 public:
  Beside(const Executor& executor, std::string_view name, Async<void> task) {
    spawn(executor, name, run(state_, std::move(task)));
  }
  // Returns what it gave, once it has ended. At most once.
  Async<void> join() {
    const auto state = state_;
    while (!state->done) co_await state->changed.wait();
    co_return std::move(*state->done);
  }

 private:
  struct State {
    std::optional<Result<void>> done;
    Notifier changed;
  };
  static Awaitable<void> run(std::shared_ptr<State> state, Async<void> task) {
    state->done = co_await std::move(task);
    state->changed.notify();
  }
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace glovebox::sandbox
