// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "egress/internal/dns_message.h"

namespace glovebox::egress {

// A name server: "198.18.0.53:53", "198.18.0.53", "[2001:db8::1]:53".
struct ServerAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  friend bool operator==(const ServerAddress& a, const ServerAddress& b);
};
Result<ServerAddress> parse_server(std::string_view text);

// What a name resolved to. `addresses` are as the servers said: the floor is the caller's business.
struct Resolved {
  std::vector<policy::Address>
      addresses;  // empty: there is no such name, or it has no IPv4 address
  Clock::time_point until;
  uint32_t ttl(Clock::time_point now = Clock::now()) const;  // seconds left, at least 1
};

// Asks the operator's name servers for IPv4 addresses: random ids and ports, TCP when an answer is
// cut short, the next server after 2 s, aliases followed. Answers, also negative ones, are kept for
// their time to live (5 … 300 s). Equal questions at the same time become one. Loop thread only.
class Resolver {
 public:
  explicit Resolver(Executor executor);
  ~Resolver();
  void set_servers(std::vector<ServerAddress> servers);  // forgets the answers of other servers
  // Null when `host` is not in the cache.
  const Resolved* cached(const std::string& host);
  // kTimeout, kUnavailable (no server configured, or all fail). Deadlines are the resolver's own: 6
  // s at most.
  Async<Resolved> resolve(std::string host);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace glovebox::egress
