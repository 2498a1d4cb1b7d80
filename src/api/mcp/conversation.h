// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/mcp/settings.h"
#include "base/async.h"
#include "sandbox/service.h"

namespace glovebox::api::mcp {

// The sandboxes of one session: one of its own, made when a call first needs one, and those it asked for. They end with it. Loop
// thread only.
class Conversation {
 public:
  // `mark` names the session among the attributes of its sandboxes, so that it can be found again after a restart of the daemon.
  Conversation(sandbox::SandboxService& service, const Settings& settings, std::string mark)
      : service_(service), settings_(settings), mark_(std::move(mark)) {}

  struct Place {
    std::string id;
    std::string note;  // for the model: what it should know about this sandbox; empty: nothing
  };
  // The sandbox that a call is for: `wanted`, or when that is empty the session's own.
  Async<Place> place(sandbox::Caller caller, std::string wanted);

  // A sandbox that ends with the session, idle ones sooner. `as_own`: the session's own from now on.
  Async<sandbox::SandboxInfo> create(sandbox::Caller caller, sandbox::CreateSpec spec, bool as_own);
  // Sandboxes that came of one of its own and end with the session, too; `is_unwanted`: they end at once.
  Async<void> adopt(sandbox::Caller caller, std::vector<sandbox::SandboxInfo> children, bool is_unwanted);
  // One that stays can still be the session's own.
  void use_as_own(std::string id) { own_ = std::move(id); }
  void forget(const std::string& id);
  const std::string& own() const { return own_; }
  bool is_empty() const { return all_.empty() && !is_making_; }

  // Ends all of them; what is being made ends when it is there.
  Awaitable<void> end(sandbox::Caller caller);
  // Takes back what a session with this mark had before the daemon was replaced; false when nothing of it lives.
  bool recover(const sandbox::Caller& caller);

 private:
  Async<Place> make_own(sandbox::Caller caller);
  std::string reason_of_end(const sandbox::Caller& caller) const;

  sandbox::SandboxService& service_;
  const Settings& settings_;
  const std::string mark_;
  std::string own_;
  std::set<std::string> all_;
  bool is_making_ = false, has_ended_ = false;
  Notifier made_;
};

}  // namespace glovebox::api::mcp
