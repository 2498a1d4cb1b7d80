// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

// Links: one network namespace for each sandbox, joined to the router by a pair of virtual Ethernet interfaces. The namespace lives
// as long as its descriptor or a process in it; the kernel then removes both interfaces, so a link leaves nothing behind.
namespace glovebox::network {

struct Link {
  uint32_t number = 0;
  UniqueFd netns;  // its interface is "eth0", configured and up, with the default route to the router
};

// Makes links and remembers which numbers are taken. Blocking, from any thread.
class Links {
 public:
  // Of the router namespace.
  static Result<std::unique_ptr<Links>> open(int router_netns);

  // A ready one from the pool, or a new one. kCapacity when every number is taken.
  Result<Link> take();
  // Fills the pool up to `count` ready links; returns how many it made.
  Result<size_t> prepare(size_t count);
  // The number of a link that an earlier daemon gave out.
  void adopt(uint32_t number);
  void release(uint32_t number);
  size_t taken() const;
  size_t ready() const;

 private:
  Links() = default;
  Result<Link> make();
  Result<uint32_t> claim_number();

  struct Wires;  // the router's side
  std::shared_ptr<Wires> wires_;
  mutable std::mutex mutex_;
  std::set<uint32_t> taken_;
  std::deque<Link> ready_;
  uint32_t next_ = 0;
};

}  // namespace glovebox::network
