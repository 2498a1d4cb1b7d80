// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sandbox/sandbox.h"

namespace glovebox::sandbox {

// Started sandboxes without an owner, standing still, for create calls to claim. They are in the ledger like any other; a daemon that
// dies leaves them to the next one, which removes them and fills up again. Loop thread only.
class Pool {
 public:
  using Box = std::shared_ptr<Sandbox>;

  // What can not be changed in a sandbox that runs: a claim must match all of it.
  struct Class {
    std::string template_version;
    runtime::Tier tier = runtime::Tier::kContainer;
    runtime::Limits limits;
    bool has_link = false;
    bool operator==(const Class& other) const;
  };
  // What the pool needs of the manager.
  struct Host {
    Executor executor;
    // A new sandbox as a create call without any wish would make it, but for its owner. An error: not now.
    std::function<Result<codec::SandboxDocument>(const PoolTarget&)> plan;
    // Starts it, and ends it when that fails.
    std::function<Async<Box>(codec::SandboxDocument)> start;
    // Brings up in it what its target wants.
    std::function<Async<void>(Box, const std::vector<std::string>&)> warm;
    // It stands still from now on, and can be claimed.
    std::function<Async<void>(Box)> rest;
    // Forgets one that is to end.
    std::function<Awaitable<void>(Box)> discard;
    // The host has memory for more than the targets' counts.
    std::function<bool()> has_room;
  };
  Pool(std::vector<PoolTarget> targets, Host host);
  ~Pool();

  // Fills up in the background, one start at a time, until stop(); with a pause after claims, so that a burst has the host for itself.
  // How many it keeps follows what was wanted lately, between a target's count and its max.
  void start();
  // No start follows; ends what is there.
  Awaitable<void> stop();

  // One that is ready, no longer the pool's; null when there is none. A miss counts only where a pool for the class is kept. What runs
  // in a warm one belongs to its template's user: it is for nobody else.
  Box take(const Class& wanted, const std::string& user);
  // What the pool has of each target, now.
  std::vector<PoolState> state() const;

 private:
  struct Shelf;
  using ShelfPtr = std::shared_ptr<Shelf>;
  static Awaitable<void> run(ShelfPtr shelf, Host host);
  static Awaitable<bool> tend(ShelfPtr shelf, const Host& host);
  static Async<Box> make_one(ShelfPtr shelf, const Host& host, codec::SandboxDocument document);
  static Async<void> warm(ShelfPtr shelf, const Host& host, Box box);
  static Awaitable<void> limit_warming(ShelfPtr shelf, Host host, Box box);

  Host host_;
  std::vector<std::shared_ptr<Shelf>> shelves_;  // shared with the coroutines that fill them
};

}  // namespace glovebox::sandbox
