// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api.h"
#include "peer.h"
#include "report.h"

namespace glovebox::bench {

// How often each thing is done; times that one tier of a full run takes are minutes, of a quick one
// well below.
struct Rounds {
  size_t lives, execs, idle_execs, bursts, burst_size, crowds, crowd_size;
  size_t parallel_rounds, small_files, large_files, preview_rounds, neighbour_rounds, neighbour_execs;
  std::string_view only = {};  // one part: lives, claims, cells, snapshots, bursts or inside; empty: all
};
constexpr Rounds kFull{.lives = 40,
                       .execs = 400,
                       .idle_execs = 30,
                       .bursts = 3,
                       .burst_size = 50,
                       .crowds = 1,
                       .crowd_size = 100,
                       .parallel_rounds = 5,
                       .small_files = 100,
                       .large_files = 5,
                       .preview_rounds = 4,
                       .neighbour_rounds = 4,
                       .neighbour_execs = 100};
constexpr Rounds kQuick{.lives = 8,
                        .execs = 60,
                        .idle_execs = 5,
                        .bursts = 1,
                        .burst_size = 50,
                        .crowds = 1,
                        .crowd_size = 20,
                        .parallel_rounds = 2,
                        .small_files = 20,
                        .large_files = 2,
                        .preview_rounds = 1,
                        .neighbour_rounds = 1,
                        .neighbour_execs = 40};

constexpr size_t kCallers = 8;

struct Target {
  std::string url, key;
  pid_t daemon = 0;
};

// What bursts of one side gave.
struct Burst {
  Samples each, walls;      // ms from the start of a burst: each sandbox's, the last one's
  Samples held, available;  // MiB for one idle sandbox: of its processes, of the host
  Samples daemon;           // MiB
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

  bool wants(const std::string& part) const;
  // What is done in a sandbox that runs.
  Async<void> inside();

  Async<std::vector<ApiPtr>> connect(size_t count);
  // Create, first exec, kill; one at a time.
  Async<void> lives();
  Async<void> claims();
  // The code interpreter in sandboxes whose kernel is up, beside ones that start it.
  Async<void> cells();
  // Pauses, snapshots, what is started from them, hibernation, differences of files.
  Async<void> snapshots();
  Async<void> hold_memory(std::string id);
  Async<void> pauses(std::string id);
  Async<void> copies(std::string id, std::string held);  // `held`: what its processes hold, in words; empty: nothing
  Result<void> their_snapshots(Samples* checkpoint, Samples* restore) const;
  Async<void> hibernations(std::string id);
  Async<void> diffs(std::string id);
  Async<void> wait_for_pool();
  // `count` bursts of `size`; with `weighs` also what the sandboxes cost while idle.
  Async<void> bursts(size_t count, size_t size, bool weighs);
  Async<void> burst_of_ours(size_t size, bool weighs, Burst* burst);
  Result<void> burst_of_theirs(size_t size, bool weighs, Burst* burst) const;
  Result<void> create_theirs(Clock::time_point start, Samples* each) const;
  Async<void> weigh_ours(std::vector<std::string> ids, double before_mib, Burst* burst) const;
  static void weigh(const std::vector<pid_t>& processes, size_t sandboxes, double before_mib,
                    Burst* burst);
  // Into sandboxes that run.
  Async<void> execs(std::string id);
  Async<void> idle_execs(std::string id);
  Async<void> parallel_execs(std::string id);
  Result<double> parallel_rate_of_theirs() const;
  Async<void> transfers(std::string id);
  Async<void> transfer(std::string id, size_t bytes, size_t count);
  Result<void> their_upload(int source_fd) const;
  Result<void> their_download(size_t bytes) const;
  Async<void> previews(std::string id);
  // Into one sandbox while another one of the tier misbehaves.
  Async<void> neighbours(std::string id);
  Async<void> beside(std::string id, std::string name, Words argv);
  Async<double> execs_beside(std::string id, std::string other, Samples* samples);
  Async<void> some_execs(std::string id, Samples* samples);

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
