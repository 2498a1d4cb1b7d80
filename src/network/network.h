// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/async.h"
#include "network/links.h"
#include "policy/egress.h"

// The network of a daemon's sandboxes: links to a router that leads nowhere but to the egress proxy, and the proxies' processes.
// Started with the first sandbox that wants a network. Loop thread only.
namespace glovebox::network {

struct Config {
  std::string directory;               // <data>/network
  std::string program;                 // this one, started again as the proxies
  bool is_enabled = true;
  std::vector<std::string> resolvers;  // "address:port"; empty: the host's /etc/resolv.conf
  policy::Operator limits;             // of the operator
  std::map<std::string, std::string> upstreams;  // "pypi", "npm", "debian", "debian_security" -> URL; what is absent the host's own clients say
  std::vector<std::string> file_hosts;           // from which upstreams may have files fetched, beyond their own
  uint64_t cache_bytes = 4ull << 30;             // of the registry proxy
  size_t ready_links = 4;
};

struct Usage {
  uint64_t bytes_in = 0, bytes_out = 0, open_connections = 0;
};

// What the proxies report about a sandbox: an entry of the connection log or of the package log, as it is shown.
enum class EventKind { kConnection, kPackage };
using OnEvent = std::function<void(const std::string& sandbox, EventKind kind, boost::json::object event)>;
// Each second while something passes: totals over the sandbox's life.
using OnUsage = std::function<void(const std::string& sandbox, const Usage& usage)>;

class Network {
 public:
  static std::unique_ptr<Network> create(Config config, Executor executor, BlockingPool* pool);
  virtual ~Network() = default;
  virtual void on_event(OnEvent callback) = 0;
  virtual void on_usage(OnUsage callback) = 0;

  // A link for a sandbox that is about to start. kUnavailable, with what to do, when networks do not work on this host.
  virtual Async<Link> acquire() = 0;
  // Takes over the link of a sandbox that an earlier daemon started, with its policy and what it has used. Before any acquire().
  virtual void adopt(uint32_t link, const std::string& sandbox, const policy::NetworkPolicy& policy, const Usage& used) = 0;
  // From its return on the policy holds: connections that it does not allow are cut. Until the first one nothing passes.
  virtual Async<void> set_policy(uint32_t link, const std::string& sandbox, const policy::NetworkPolicy& policy) = 0;
  // Makes a link and gives it back, and waits for both proxies: whatever a sandbox with a network needs. kUnavailable with what is
  // wrong, and with details.remedy where a command helps. Takes a few milliseconds once a sandbox had a network.
  virtual Async<void> probe() = 0;
  // The sandbox is gone.
  virtual void release(uint32_t link) = 0;
  virtual Usage usage(uint32_t link) const = 0;

  virtual const policy::Operator& limits() const = 0;
  struct Status {
    bool is_enabled = false, is_running = false;
    std::string problem;  // of the last attempt to start it
    size_t links = 0, ready_links = 0;
  };
  virtual Status status() const = 0;

  // Starts it when a sandbox of an earlier daemon needs it, see adopt(); returns when their traffic passes again.
  virtual Awaitable<void> recover() = 0;
  // Ends the proxies, and the router unless sandboxes with links live on.
  virtual Awaitable<void> stop() = 0;
};

// What probe() found, for people and programs: {"enabled", "works", "problem", "remedy", "links", "ready_links"}.
boost::json::object describe(const Network::Status& status, const Result<void>& probed);

}  // namespace glovebox::network
