// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "channel/link.h"
#include "network/network.h"
#include "sandbox/config.h"
#include "sandbox/event_log.h"
#include "sandbox/service.h"

namespace glovebox::sandbox {

// One sandbox's part in the network: its link, its logs of connections and packages, and the files inside that tell its programs how
// to use it. Loop thread only.
class Networking : public std::enable_shared_from_this<Networking> {
 public:
  struct Parts {
    network::Network* network = nullptr;
    Executor executor;
    BlockingPool* pool = nullptr;
    const Config* config = nullptr;
    std::string sandbox;
    std::string log_directory;
  };
  explicit Networking(Parts parts);

  // Takes a link and puts the policy in force; `used` counts already. The descriptor is of the namespace to start in, and closed by
  // release_namespace().
  Async<int> connect(const policy::NetworkPolicy& policy, const network::Usage& used);
  void release_namespace() { held_.reset(); }
  // The link of a sandbox that an earlier daemon started.
  void adopt(uint32_t number, const policy::NetworkPolicy& policy, const network::Usage& used);
  Async<void> set_policy(const policy::NetworkPolicy& policy);
  void release();
  std::optional<uint32_t> link() const { return number_; }

  // resolv.conf, the same for every policy, and the configuration of package clients.
  Async<void> write_files(std::shared_ptr<channel::Link> agent, const policy::NetworkPolicy& policy);
  Async<void> write_package_files(std::shared_ptr<channel::Link> agent, const policy::NetworkPolicy& policy);
  // What the second one asks of the sandbox, in advance.
  Async<void> learn_release(std::shared_ptr<channel::Link> agent);

  void take_event(network::EventKind kind, boost::json::object event);
  // The last denials as they stand in the sandbox, and whether they changed since this was asked.
  std::optional<std::string> changed_denials();

  EventLog& log(network::EventKind kind);
  network::Usage usage() const;
  std::string effective(const policy::NetworkPolicy& policy) const;  // JSON

 private:
  Parts parts_;
  std::optional<uint32_t> number_;
  UniqueFd held_;
  std::optional<std::string> release_;  // of the template's Debian; empty: it is none
  std::shared_ptr<EventLog> connections_, packages_;
  std::deque<std::string> denials_;
  bool denials_changed_ = false;
};

inline constexpr std::string_view kDenialsPath = "/run/glovebox/denials.jsonl";

// Writes a small file inside as root, mode 0644, with its directories.
Async<void> put_file(std::shared_ptr<channel::Link> agent, const Patience& patience, std::string path, std::string content);

}  // namespace glovebox::sandbox
