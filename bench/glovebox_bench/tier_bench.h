// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api.h"
#include "peer.h"
#include "report.h"

namespace glovebox::bench {

// How often each thing is done; times that one tier of a full run takes are minutes, of a quick one
// well below.
struct Rounds {
  size_t lives, execs, idle_execs, bursts, burst_size, parallel_rounds, small_files, large_files;
};
constexpr Rounds kFull{40, 400, 30, 3, 50, 5, 100, 5};
constexpr Rounds kQuick{8, 60, 5, 1, 50, 2, 20, 2};

constexpr size_t kCallers = 8;

struct Target {
  std::string url, key;
};

// Measures one tier against one engine. Ours and the peer's take turns, so that what else the
// machine does hits both.
class TierBench {
 public:
  // `peer` may be nullptr; `why_no_peer` then says why.
  TierBench(Target target, std::string tier, const Peer* peer, std::string why_no_peer,
            Rounds rounds, std::string static_true)
      : target_(std::move(target)),
        tier_(std::move(tier)),
        peer_(peer),
        why_no_peer_(std::move(why_no_peer)),
        rounds_(rounds),
        static_true_(std::move(static_true)) {}

  Async<void> run();

 private:
  using ApiPtr = std::unique_ptr<Api>;

  Async<std::vector<ApiPtr>> connect(size_t count);
  // Create, first exec, kill; one at a time.
  Async<void> lives();
  Async<void> bursts();
  Async<Samples> burst_of_ours(Samples* walls);
  Result<Samples> burst_of_theirs(Samples* walls) const;
  // Into sandboxes that run.
  Async<void> execs(std::string id);
  Async<void> idle_execs(std::string id);
  Async<void> parallel_execs(std::string id);
  Result<double> parallel_rate_of_theirs() const;
  Async<void> transfers(std::string id);
  Async<void> transfer(std::string id, size_t bytes, size_t count);
  Result<void> their_upload(int source_fd) const;
  Result<void> their_download(size_t bytes) const;

  void report(std::string what, std::string unit, Samples ours, std::string peer, Samples theirs,
              std::string target = {}) const;
  // "runsc exec true", or nothing without a peer.
  std::string peer_words(const std::string& what) const {
    return peer_ ? peer_->name() + " " + what : "";
  }

  Target target_;
  std::string tier_;
  const Peer* peer_;
  std::string why_no_peer_;
  Rounds rounds_;
  std::string static_true_;  // a static program that does nothing
  ApiPtr api_;
};

// Runs every task at once on this loop and waits for all; the first failure is the result.
Async<void> all(std::vector<std::function<Async<void>()>> tasks);

}  // namespace glovebox::bench
