// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <optional>
#include <utility>

#include "base/async.h"

namespace glovebox {

// For tests: runs one coroutine at a time to its end on a loop of its own.
class TestLoop {
 public:
  template <class T>
  Result<T> run(Async<T> work) {
    std::optional<Result<T>> result;
    auto task = [](Async<T> w, std::optional<Result<T>>& out) -> Awaitable<void> { out = co_await std::move(w); };
    spawn(loop_.get_executor(), "test", task(std::move(work), result));
    loop_.restart();
    loop_.run();
    return std::move(*result);
  }

 private:
  boost::asio::io_context loop_;
};

}  // namespace glovebox
