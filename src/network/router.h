// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "sys/process.h"

// The router: a network namespace without any way out, in which the host ends of all links are. Its packet filter hands TCP and DNS to
// the egress proxy's sockets and drops everything else; nothing is ever forwarded. Everything here blocks.
namespace glovebox::network {

constexpr uint16_t kTcpPort = 3129;  // the egress proxy's, in the router namespace
constexpr uint16_t kDnsPort = 3053;

// Link n has the two addresses 10.200.0.0 + 2n (router) and + 2n + 1 (sandbox). The first 1024 addresses are for services.
constexpr uint32_t kNetwork = 0x0AC80000;  // 10.200.0.0/15
constexpr uint32_t kFirstLink = 512;
constexpr uint32_t kEndLink = 65536;
constexpr uint32_t kPackagesAddress = kNetwork + 1;
constexpr uint32_t kResolverAddress = kNetwork + 2;
inline uint32_t router_address(uint32_t link) { return kNetwork + 2 * link; }
inline uint32_t sandbox_address(uint32_t link) { return kNetwork + 2 * link + 1; }
inline std::string link_name(uint32_t link) { return "gb" + std::to_string(link); }

class Router {
 public:
  // Takes the router over that an earlier daemon of this data directory left for its sandboxes, or makes one.
  // `program` is started as the process that keeps the namespace: it must call keep_network() when its first argument is "internal-keep-network".
  static Result<Router> open(const std::string& directory, const std::string& program);

  int netns() const { return netns_.get(); }
  const sys::ProcessId& keeper() const { return keeper_; }
  bool was_adopted() const { return was_adopted_; }

  // Loads the packet filter, replacing what there was in one step.
  Result<void> load_filter();
  // kCorrupt when somebody changed it.
  Result<void> check_filter() const;
  // A netlink socket that becomes readable with every change to packet filters in the namespace.
  Result<UniqueFd> watch_filter() const;
  // Starts another keeper when the last one is gone; true when it did.
  Result<bool> ensure_keeper();
  // Ends the keeper; the namespace goes when nothing else is in it.
  void leave();

 private:
  Result<void> adopt();
  Result<void> make();
  Result<void> start_keeper();

  std::string directory_, program_;
  UniqueFd netns_;
  sys::ProcessId keeper_;
  std::string expected_filter_;
  bool was_adopted_ = false;
};

// Ends what an earlier daemon of this data directory left, when no sandbox needs it any more.
void end_left_routers(const std::string& directory);

// The rest of what `keep-network` does: sleeps until SIGTERM.
int keep_network();

}  // namespace glovebox::network
