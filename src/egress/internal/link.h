// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "egress/internal/journal.h"
#include "egress/internal/limits.h"
#include "policy/egress.h"

namespace glovebox::egress {

// Something open that a policy may come to forbid: a connection, a relayed UDP flow.
class Cuttable {
 public:
  virtual ~Cuttable() = default;
  // Asked after the policy changed: would what is open now be allowed?
  virtual policy::Verdict judge_again() = 0;
  // Ends it at once: when this returns, not one byte more passes.
  virtual void cut(const policy::Verdict& why) = 0;
};

// One sandbox's link: its policy, its limits, and what it has open. Lives while it is set or a flow
// uses it.
class Link {
 public:
  Link(policy::Address address, std::string sandbox, Journal& journal);

  const policy::Address& address() const { return address_; }
  const std::string& sandbox() const { return sandbox_; }
  const policy::Evaluator& evaluator() const { return *evaluator_; }
  bool has_packages() const { return evaluator_->packages().has_value(); }
  bool is_gone() const { return is_gone_; }

  // Both cut what is no longer allowed before they return.
  void set_policy(policy::NetworkPolicy policy, const policy::Operator& op);
  void set_operator(const policy::Operator& op) { set_policy(policy_, op); }
  void remove();

  // May one more flow be opened? Counts connections and the total of bytes.
  policy::Verdict admit() const;
  void add(Cuttable* flow) { flows_.insert(flow); }
  void drop(Cuttable* flow) { flows_.erase(flow); }
  size_t open() const { return flows_.size(); }

  // Counts what passed; at the total allowed, everything open is cut.
  void count_out(uint64_t bytes);
  void count_in(uint64_t bytes);
  uint64_t remaining_bytes() const;  // before that
  uint64_t bytes_out() const { return bytes_out_; }
  uint64_t bytes_in() const { return bytes_in_; }
  void start_from(uint64_t in, uint64_t out) {
    bytes_in_ = in;
    bytes_out_ = out;
  }
  TokenBucket& out_bucket() { return out_bucket_; }
  TokenBucket& in_bucket() { return in_bucket_; }

  // Names: may `host` be looked up now, by the policy and by what guards against tunnels?
  policy::Verdict admit_name(const std::string& host);
  // One query of any kind, named or not.
  bool admit_query() { return query_bucket_.take(1) == 1; }
  bool begin_lookup();
  void end_lookup() { --lookups_; }

  // Addresses that our resolver gave this sandbox for a name: raw TCP to them counts as to the
  // name.
  void pin(const std::string& host, const std::vector<policy::Address>& addresses);
  std::vector<std::string> names_of(const policy::Address& address) const;

  void record(const Event& event) { journal_.record(sandbox_, event_rate_, event); }
  void flush_events() { journal_.flush(sandbox_, event_rate_); }
  Journal& journal() { return journal_; }

  // For the once-a-second report.
  bool take_changed() { return std::exchange(changed_, false); }
  void mark_changed() { changed_ = true; }

 private:
  struct Pin {
    policy::Address address;
    std::string host;
    Clock::time_point until;
  };
  void cut_all(const policy::Verdict& why);
  void check_total();

  policy::Address address_;
  std::string sandbox_;
  Journal& journal_;
  policy::NetworkPolicy policy_;
  std::shared_ptr<const policy::Evaluator> evaluator_;
  std::set<Cuttable*> flows_;
  uint64_t bytes_out_ = 0, bytes_in_ = 0;
  TokenBucket out_bucket_, in_bucket_, query_bucket_;
  NameBudget names_;
  std::vector<Pin> pins_;
  size_t lookups_ = 0;
  EventRate event_rate_;
  bool changed_ = false;
  bool is_gone_ = false;
};

// What a sandbox's earlier proxies have counted.
struct Used {
  uint64_t in = 0, out = 0;
};

// Every link by the address its sandbox has.
class Links {
 public:
  explicit Links(Journal& journal) : journal_(journal) {}
  // Null when nobody has that address.
  std::shared_ptr<Link> find(const policy::Address& address) const;
  // `used`: for a link that is new here.
  void set(const policy::Address& address, const std::string& sandbox, policy::NetworkPolicy policy, Used used = {});
  void remove(const policy::Address& address);
  void set_operator(policy::Operator op);
  const policy::Operator& op() const { return operator_; }
  const std::map<policy::Address, std::shared_ptr<Link>>& all() const { return links_; }

 private:
  Journal& journal_;
  policy::Operator operator_;
  std::map<policy::Address, std::shared_ptr<Link>> links_;
};

}  // namespace glovebox::egress
