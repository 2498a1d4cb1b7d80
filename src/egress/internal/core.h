// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>

#include "egress/internal/journal.h"
#include "egress/internal/link.h"
#include "egress/internal/relay.h"
#include "egress/internal/resolver.h"

namespace glovebox::egress {

class Flow;

// What every part of the proxy shares. One per process; outlives all coroutines.
struct Core {
  Core(Executor e, std::function<void(std::string)> write)
      : executor(e), journal(std::move(write)), links(journal), resolver(e) {}

  Executor executor;
  Journal journal;
  Links links;
  Resolver resolver;
  Pipes pipes;
  std::string registry_socket;  // empty: there is no registry proxy
  std::set<Flow*> flows;
  size_t max_flows = 256;  // by the number of descriptors this process may have
};

// Addresses that stand for services of ours, not for hosts: 10.200.0.0/22.
constexpr uint32_t kServiceBase = 0x0AC80000, kServiceMask = 0xFFFFFC00;
constexpr uint32_t kPackagesAddress = kServiceBase + 1, kDnsAddress = kServiceBase + 2;
constexpr std::string_view kPackagesHost = "packages.glovebox.internal";
inline bool is_service_address(const policy::Address& address) {
  return !address.is_v6 && (address.v4() & kServiceMask) == kServiceBase;
}

}  // namespace glovebox::egress
