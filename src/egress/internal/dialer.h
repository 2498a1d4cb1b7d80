// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "egress/internal/core.h"
#include "egress/internal/watched.h"

namespace glovebox::egress {

struct Dialed {
  policy::Verdict verdict;        // when not allowed, nothing was sent anywhere
  std::optional<Watched> stream;  // connected, when all went well
  std::optional<policy::Address>
      address;          // where it goes, the last one that was tried, or the one that was refused
  std::string failure;  // allowed, but the network beyond failed: why
};

// Connects where `attempt` asks to: to its address, or without one to an address of our own
// resolution of its host that the policy and the floor let through, `preferred` first when it is
// one of them. The verdict is that of the policy in force when the connection stands.
Awaitable<Dialed> dial(Core& core, std::shared_ptr<Link> link, policy::Attempt attempt,
                       std::optional<policy::Address> preferred);

// To the registry proxy's socket. Empty when it does not answer.
Awaitable<std::optional<Watched>> dial_unix(Core& core, const std::string& path);

}  // namespace glovebox::egress
