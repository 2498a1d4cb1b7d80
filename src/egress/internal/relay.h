// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "egress/internal/link.h"
#include "egress/internal/watched.h"

namespace glovebox::egress {

// Pipes for splice(2), kept for reuse. A direction of a connection holds one only while bytes are
// under way in it.
class Pipes {
 public:
  struct Pipe {
    UniqueFd read_end, write_end;
  };
  Pipe take();  // without descriptors when there are too many pipes: copy instead
  // Only an empty pipe may come back; one that holds bytes is dropped by discard().
  void give_back(Pipe pipe);
  void discard(Pipe pipe);

 private:
  std::vector<Pipe> idle_;
  size_t made_ = 0;
};

// What one connection has moved, on whose account.
struct Traffic {
  Link& link;
  uint64_t out = 0, in = 0;
  bool is_cut = false;
  Clock::time_point last_byte{};
};
enum class Way { kOut, kIn };  // from the sandbox, to the sandbox
void count(Traffic& traffic, Way way, uint64_t bytes);

enum class PumpEnd {
  kEof,     // the source has ended
  kLimit,   // `limit` bytes were moved
  kBroken,  // an end failed, was cancelled, or the connection was cut
};
// Moves bytes without looking at them, within the link's bandwidth.
Awaitable<PumpEnd> pump(Pipes& pipes, Traffic& traffic, Way way, Watched& from, Watched& to,
                        uint64_t limit = std::numeric_limits<uint64_t>::max());
// Sends bytes that were read before; they are counted here and wait for bandwidth, too. False when
// the connection broke.
Awaitable<bool> send_all(Traffic& traffic, Way way, Watched& to, std::string_view bytes);
// Bytes of our own: not counted.
Awaitable<bool> send_own(Watched& to, std::string_view bytes);

}  // namespace glovebox::egress
