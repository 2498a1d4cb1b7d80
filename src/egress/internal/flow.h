// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "egress/internal/client_hello.h"
#include "egress/internal/core.h"
#include "egress/internal/dialer.h"
#include "egress/internal/http_plan.h"

namespace glovebox::egress {

// One TCP connection of a sandbox, from its acceptance to its end. Registered with its link and the
// core as long as it exists.
class Flow : public Cuttable, public std::enable_shared_from_this<Flow> {
 public:
  // `destination`: the address that the sandbox dialled.
  Flow(Core& core, std::shared_ptr<Link> link, UniqueFd client, Destination destination);
  ~Flow() override;
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  static Awaitable<void> run(std::shared_ptr<Flow> self);

  policy::Verdict judge_again() override;
  void cut(const policy::Verdict& why) override;
  // Called twice a second: gives up on a phase that has taken too long.
  void check_deadline(Clock::time_point now);

  // For what speaks on this connection (HttpSession, DNS over TCP).
  Core& core() { return core_; }
  Link& link() { return *link_; }
  std::shared_ptr<Link> shared_link() { return link_; }
  Watched& client() { return client_; }
  std::optional<Watched>& upstream() { return upstream_; }
  Traffic& traffic() { return traffic_; }
  std::string& input() { return input_; }  // what the sandbox sent and nobody has taken yet
  const Destination& destination() const { return destination_; }
  void enter_tunnel(Destination destination) { destination_ = std::move(destination); }
  const std::string& id() const { return id_; }
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  bool has_expired() const { return has_expired_; }
  // What is open now, to be judged again when the policy changes.
  void set_attempt(policy::Attempt attempt) { attempt_ = std::move(attempt); }
  // Reads more of the sandbox's bytes into input(). False at its end, when cut, or at the deadline.
  Awaitable<bool> read_more();
  // Both directions without looking, to the end. `is_silent`: the client has not spoken yet, and
  // its first bytes are judged.
  Awaitable<void> relay(bool is_silent);
  // No more from us; takes what the sandbox still sends for a moment, so that it can read our last
  // words.
  Awaitable<void> linger();
  void abort();
  Event event(std::string_view kind, std::string_view protocol) const;
  void record(const Event& event) { link_->record(event); }
  // The address, or the name a CONNECT gave, is open to raw TCP.
  policy::Verdict judge_raw() const;
  policy::Verdict judge_named(policy::Attempt& attempt) const;
  bool serves_packages() const { return is_service_; }

 private:
  Awaitable<void> converse();
  Awaitable<void> serve_service_address();
  Awaitable<Opening> sniff(bool is_soft);
  // False when the rules of raw TCP apply instead.
  Awaitable<bool> run_tls(bool is_raw_allowed);
  Awaitable<void> run_raw(policy::Verdict verdict, bool is_silent);
  Awaitable<void> connect_and_relay(policy::Attempt attempt, std::string note, bool is_silent);
  Awaitable<bool> judge_late();
  Awaitable<std::string> read_host();
  void end_way(PumpEnd end, Watched& receiver);
  Awaitable<Result<ClientHello>> read_hello();
  Awaitable<void> refuse_tls(const policy::Verdict& verdict, const std::string& host,
                             std::optional<policy::Address> address = {});
  void refuse_raw(const policy::Verdict& verdict, std::string_view protocol = "tcp",
                  const std::string& host = {});
  bool do_names_matter() const;
  bool has_rule_about_names() const;
  policy::Attempt attempt_for(policy::Protocol protocol, std::string host) const;

  Core& core_;
  std::shared_ptr<Link> link_;
  Watched client_;
  std::optional<Watched> upstream_;
  Destination destination_;
  std::string input_;
  Traffic traffic_;
  std::string id_;
  std::optional<policy::Attempt> attempt_;
  std::string cut_reason_, cut_rule_;
  Deadline deadline_ = Deadline::max();
  bool is_half_closed_ = false;
  bool has_expired_ = false;
  bool is_service_ = false;
};

// True for a refusal that no rule asked for: "default:none", "default:allowlist".
bool is_default(const policy::Verdict& verdict);

}  // namespace glovebox::egress
