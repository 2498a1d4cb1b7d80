// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/async.h"

// The client's side of a command: one coroutine on a loop of its own, signals, and the standard
// streams.
namespace glovebox::cli {

struct Loop {
  Executor executor;
  BlockingPool* pool = nullptr;
  // What to do at SIGINT, SIGTERM, SIGHUP or SIGWINCH. While it is empty the first three end the
  // program with 128 + number (destructors run), and SIGWINCH is ignored. One that was ignored when the program started stays so.
  std::function<void(int signal)> on_signal;
  int pending_signals = 0;  // how many of the first three came; whoever answers them sets it back
  int last_signal = 0;
  std::function<void(int exit_code)>
      stop;  // cancels the main coroutine: it unwinds, then run_loop() returns this; twice: _exit()
};

// Runs `main` to its end and returns its exit status or error. The signals above are blocked while
// it runs: children must unblock them.
Result<int> run_loop(const std::function<Async<int>(Loop&)>& main);

// Standard input, read without keeping the program alive: a pending read goes away with the
// coroutine. The next bytes, an empty string at the end (and after an error: a terminal that is
// gone reads as ended).
Awaitable<std::string> read_input(int fd);

// Writes to standard output and error in order without stopping the loop: a slow reader stops the
// coroutine that pushes, once kMaxQueued bytes wait.
class OutputQueue {
 public:
  static constexpr size_t kMaxQueued = 4 << 20;
  explicit OutputQueue(Loop& loop);
  Async<void> push(int fd, std::string data);  // kCancelled when the reader is gone (EPIPE), kIo
  Async<void> flush();                         // everything pushed so far is written

 private:
  struct State;
  static Awaitable<void> write_all(std::shared_ptr<State> state, BlockingPool& pool);
  std::shared_ptr<State> state_;
};

// Writes all of it, blocking. For short messages and for threads of the pool.
Result<void> write_fully(int fd, std::string_view data);

}  // namespace glovebox::cli
