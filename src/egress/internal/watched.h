// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/async.h"
#include "base/unique_fd.h"

namespace glovebox::egress {

// A non-blocking descriptor that coroutines wait for, one reader and one writer at a time. Once
// cancelled, every wait, also one that is under way, gives false.
class Watched {
 public:
  Watched(const Executor& executor, UniqueFd fd);
  ~Watched();
  Watched(Watched&&) noexcept;
  Watched& operator=(Watched&&) noexcept;

  int fd() const;
  Awaitable<bool> readable();
  Awaitable<bool> writable();
  void cancel();
  // Ends the waits that are under way with false; later ones are as before.
  void interrupt();
  // TCP: drops what is queued to be sent, sends RST, and cancels. Nothing leaves this socket
  // afterwards.
  void abort();
  bool is_cancelled() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Lets other coroutines run.
Awaitable<void> yield();

}  // namespace glovebox::egress
