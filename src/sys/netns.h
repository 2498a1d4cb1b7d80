// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

// Network namespaces and what is configured in them, by rtnetlink (rtnetlink(7)) and /proc/sys/net. Everything blocks, for
// microseconds; needs CAP_NET_ADMIN and CAP_SYS_ADMIN.
namespace glovebox::sys {

// The namespace of the calling thread.
Result<UniqueFd> open_netns();
// Runs `work` with the calling thread in namespace `fd`, and comes back. A thread that cannot come back ends the process:
// it must not go on in a sandbox's network.
Result<void> in_netns(int fd, const std::function<Result<void>()>& work);
// The same in a new namespace, which lives as long as the descriptor or what `work` made in it.
Result<UniqueFd> in_new_netns(const std::function<Result<void>()>& work);

// A route socket of the namespace it was opened in, whichever thread uses it later. Not for two threads at once.
class RouteSocket {
 public:
  static Result<RouteSocket> open();

  // kAlreadyExists when the name is taken. The peer is made inside `peer_netns`.
  Result<void> add_veth(const std::string& name, const std::string& peer, int peer_netns);
  // kNotFound when there is no such interface.
  Result<uint32_t> index_of(const std::string& name);
  Result<void> set_up(uint32_t index);
  // Until the interface carries packets: the kernel starts its queue a moment after its peer is up, and drops what comes earlier.
  // kTimeout after a second.
  Result<void> wait_running(const std::string& name);
  Result<void> add_address(uint32_t index, uint32_t address, int prefix);  // IPv4, host order
  Result<void> add_default_route(uint32_t index, uint32_t gateway);

 private:
  explicit RouteSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  struct State {
    uint32_t index = 0, flags = 0;
  };
  Result<State> state_of(const std::string& name);
  Result<void> talk(std::string_view message, State* state = nullptr);

  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

// Writes <value> to /proc/sys/net/<name> of the calling thread's namespace.
Result<void> set_net_option(const std::string& name, std::string_view value);

}  // namespace glovebox::sys
