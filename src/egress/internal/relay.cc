// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/relay.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace glovebox::egress {
namespace {

constexpr size_t kMaxPipes = 512, kMaxIdlePipes = 64;
constexpr int kPipeBytes = 512 << 10;
constexpr size_t kChunk = 512 << 10;
// Bytes that one direction may move before others have their turn.
constexpr size_t kTurn = 2 << 20;
constexpr size_t kCopyBytes = 64 << 10;

// Gives back a pipe that is empty, and drops one that is not, however the user's coroutine ends.
class Lease {
 public:
  explicit Lease(Pipes& pipes) : pipes_(pipes) {}
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { end(); }
  // Null when there is none to be had.
  Pipes::Pipe* get() {
    if (!pipe_.read_end) pipe_ = pipes_.take();
    return pipe_.read_end ? &pipe_ : nullptr;
  }
  void end() {
    if (!pipe_.read_end) return;
    if (held == 0) {
      pipes_.give_back(std::move(pipe_));
    } else {
      pipes_.discard(std::move(pipe_));
    }
    pipe_ = {};
  }
  size_t held = 0;  // bytes in the pipe

 private:
  Pipes& pipes_;
  Pipes::Pipe pipe_;
};

TokenBucket& bucket(Traffic& traffic, Way way) {
  return way == Way::kOut ? traffic.link.out_bucket() : traffic.link.in_bucket();
}

// At least one byte's worth of bandwidth, at most `wanted`. 0 when the connection was cut
// meanwhile.
Awaitable<size_t> wait_for_bandwidth(Traffic& traffic, Way way, size_t wanted) {
  wanted = static_cast<size_t>(
      std::min<uint64_t>(wanted, std::max<uint64_t>(traffic.link.remaining_bytes(), 1)));
  while (!traffic.is_cut) {
    const auto got = bucket(traffic, way).take(wanted);
    if (got > 0) co_return static_cast<size_t>(got);
    co_await sleep_until(bucket(traffic, way).next_at());
  }
  co_return 0;
}

// One piece through a buffer of ours, for when there are no pipes left. As recv(2), and everything
// read has been sent.
Awaitable<ssize_t> copy_some(Watched& from, Watched& to, size_t most) {
  const auto buffer = std::make_unique<char[]>(kCopyBytes);
  const ssize_t n = ::recv(from.fd(), buffer.get(), std::min(most, kCopyBytes), MSG_DONTWAIT);
  if (n <= 0) co_return n;
  if (!co_await send_own(to, {buffer.get(), static_cast<size_t>(n)})) {
    errno = EPIPE;
    co_return -1;
  }
  co_return n;
}

// Empties the pipe into `to`; false when that broke.
Awaitable<bool> drain(Lease& lease, const Traffic& traffic, Watched& to) {
  while (lease.held > 0) {
    if (traffic.is_cut) co_return false;
    const ssize_t n = ::splice(lease.get()->read_end.get(), nullptr, to.fd(), nullptr, lease.held,
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0) {
      lease.held -= static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      if (!co_await to.writable()) co_return false;
    } else if (n == 0 || errno != EINTR) {
      co_return false;
    }
  }
  co_return true;
}

}  // namespace

Pipes::Pipe Pipes::take() {
  if (!idle_.empty()) {
    Pipe pipe = std::move(idle_.back());
    idle_.pop_back();
    return pipe;
  }
  int ends[2];
  if (made_ >= kMaxPipes || ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  ++made_;
  ::fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);  // without success it is smaller, and works
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

void Pipes::give_back(Pipe pipe) {
  if (idle_.size() >= kMaxIdlePipes) return discard(std::move(pipe));
  idle_.push_back(std::move(pipe));
}

void Pipes::discard(Pipe pipe) {
  pipe = {};
  --made_;
}

void count(Traffic& traffic, Way way, uint64_t bytes) {
  traffic.last_byte = Clock::now();
  if (way == Way::kOut) {
    traffic.out += bytes;
    traffic.link.count_out(bytes);
  } else {
    traffic.in += bytes;
    traffic.link.count_in(bytes);
  }
}

Awaitable<PumpEnd> pump(Pipes& pipes, Traffic& traffic, Way way, Watched& from, Watched& to,
                        uint64_t limit) {
  Lease lease(pipes);
  size_t turn = 0;
  while (limit > 0) {
    if (traffic.is_cut || from.is_cancelled() || to.is_cancelled()) co_return PumpEnd::kBroken;
    const size_t most = co_await wait_for_bandwidth(
        traffic, way, static_cast<size_t>(std::min<uint64_t>(limit, kChunk)));
    if (most == 0) co_return PumpEnd::kBroken;
    const auto* pipe = lease.get();
    const ssize_t n = pipe ? ::splice(from.fd(), nullptr, pipe->write_end.get(), nullptr, most,
                                      SPLICE_F_MOVE | SPLICE_F_NONBLOCK)
                           : co_await copy_some(from, to, most);
    bucket(traffic, way).give_back(most - static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) co_return PumpEnd::kEof;
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) co_return PumpEnd::kBroken;
      lease.end();
      if (!co_await from.readable()) co_return PumpEnd::kBroken;
      turn = 0;
      continue;
    }
    const auto moved = static_cast<size_t>(n);
    if (pipe) lease.held += moved;
    count(traffic, way, moved);  // may cut this very connection
    if (pipe && !co_await drain(lease, traffic, to)) co_return PumpEnd::kBroken;
    limit -= moved;
    turn += moved;
    if (turn >= kTurn) {
      turn = 0;
      co_await yield();
    }
  }
  co_return PumpEnd::kLimit;
}

Awaitable<bool> send_all(Traffic& traffic, Way way, Watched& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t most = co_await wait_for_bandwidth(traffic, way, bytes.size());
    if (most == 0) co_return false;
    count(traffic, way, most);
    if (traffic.is_cut || !co_await send_own(to, bytes.substr(0, most))) co_return false;
    bytes.remove_prefix(most);
  }
  co_return !traffic.is_cut;
}

Awaitable<bool> send_own(Watched& to, std::string_view bytes) {
  while (!bytes.empty()) {
    if (to.is_cancelled()) co_return false;
    const ssize_t n = ::send(to.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      if (!co_await to.writable()) co_return false;
    } else if (errno != EINTR) {
      co_return false;
    }
  }
  co_return true;
}

}  // namespace glovebox::egress
