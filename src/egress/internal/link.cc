// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/link.h"

#include <algorithm>
#include <limits>

namespace glovebox::egress {
namespace {

constexpr uint64_t kQueriesPerSecond = 50, kQueryBurst = 100;
constexpr size_t kMaxLookups = 64;  // under way at one time, for one sandbox
constexpr size_t kMaxPins = 1024;
// Programs keep addresses for longer than the answer says.
constexpr auto kPinTime = std::chrono::hours(1);

policy::Verdict limit_verdict(std::string rule, std::string reason, std::string how) {
  return {false, std::move(rule), std::move(reason), std::move(how)};
}

TokenBucket bandwidth_bucket(uint64_t per_second) {
  // A fifth of a second at full rate, and never so little that single segments wait.
  return per_second == 0 ? TokenBucket()
                         : TokenBucket(per_second, std::max<uint64_t>(per_second / 5, 64 << 10));
}

}  // namespace

Link::Link(policy::Address address, std::string sandbox, Journal& journal)
    : address_(address),
      sandbox_(std::move(sandbox)),
      journal_(journal),
      query_bucket_(kQueriesPerSecond, kQueryBurst) {}

void Link::set_policy(policy::NetworkPolicy policy, const policy::Operator& op) {
  policy_ = std::move(policy);
  const uint64_t bandwidth = evaluator_ ? evaluator_->limits().bandwidth : 0;
  evaluator_ = std::make_shared<policy::Evaluator>(policy_, op);
  if (evaluator_->limits().bandwidth != bandwidth) {
    out_bucket_ = bandwidth_bucket(evaluator_->limits().bandwidth);
    in_bucket_ = bandwidth_bucket(evaluator_->limits().bandwidth);
  }
  for (auto* flow : std::vector<Cuttable*>(flows_.begin(), flows_.end())) {
    if (!flows_.contains(flow)) continue;
    if (const auto verdict = flow->judge_again(); !verdict.allowed) flow->cut(verdict);
  }
  check_total();
}

void Link::remove() {
  is_gone_ = true;
  cut_all(
      limit_verdict("link", "the sandbox's link was removed", "Nothing can: the link is gone."));
}

void Link::cut_all(const policy::Verdict& why) {
  for (auto* flow : std::vector<Cuttable*>(flows_.begin(), flows_.end())) {
    if (flows_.contains(flow)) flow->cut(why);
  }
}

policy::Verdict Link::admit() const {
  const auto& limits = evaluator_->limits();
  if (limits.bytes != 0 && bytes_in_ + bytes_out_ >= limits.bytes) {
    return limit_verdict("limit:bytes",
                         "the sandbox has used up its " + std::to_string(limits.bytes) + " bytes",
                         "Raise limits.bytes in the sandbox's network policy.");
  }
  if (limits.connections != 0 && flows_.size() >= limits.connections) {
    return limit_verdict(
        "limit:connections",
        "the sandbox has " + std::to_string(flows_.size()) + " connections open",
        "Close some, or raise limits.connections in the sandbox's network policy.");
  }
  return {true, "", "", ""};
}

void Link::count_out(uint64_t bytes) {
  bytes_out_ += bytes;
  changed_ = true;
  check_total();
}

void Link::count_in(uint64_t bytes) {
  bytes_in_ += bytes;
  changed_ = true;
  check_total();
}

uint64_t Link::remaining_bytes() const {
  const auto limit = evaluator_->limits().bytes;
  if (limit == 0) return std::numeric_limits<uint64_t>::max();
  return limit - std::min(limit, bytes_in_ + bytes_out_);
}

void Link::check_total() {
  const auto limit = evaluator_->limits().bytes;
  if (limit != 0 && bytes_in_ + bytes_out_ >= limit && !flows_.empty()) {
    cut_all(limit_verdict("limit:bytes",
                          "the sandbox has used up its " + std::to_string(limit) + " bytes",
                          "Raise limits.bytes in the sandbox's network policy."));
  }
}

policy::Verdict Link::admit_name(const std::string& host) {
  auto verdict = evaluator_->decide_name(host);
  if (!verdict.allowed) return verdict;
  for (const auto& rule : evaluator_->allow()) {
    if (rule.name != verdict.rule || !rule.host.starts_with("*.")) continue;
    const std::string why = names_.check(rule.host, host);
    if (why.empty()) break;
    return limit_verdict(
        "limit:dns", why,
        "Name the hosts one by one in allow rules: exact names have no such limit.");
  }
  return verdict;
}

bool Link::begin_lookup() {
  if (lookups_ >= kMaxLookups) return false;
  ++lookups_;
  return true;
}

void Link::pin(const std::string& host, const std::vector<policy::Address>& addresses) {
  const auto now = Clock::now();
  std::erase_if(pins_, [&](const Pin& pin) { return pin.until < now; });
  for (const auto& address : addresses) {
    const auto same = [&](const Pin& pin) { return pin.address == address && pin.host == host; };
    const auto it = std::find_if(pins_.begin(), pins_.end(), same);
    if (it != pins_.end()) pins_.erase(it);
    if (pins_.size() >= kMaxPins) pins_.erase(pins_.begin());
    pins_.push_back({address, host, now + kPinTime});
  }
}

std::vector<std::string> Link::names_of(const policy::Address& address) const {
  std::vector<std::string> names;
  const auto now = Clock::now();
  for (const auto& pin : pins_) {
    if (pin.address == address && pin.until >= now) names.push_back(pin.host);
  }
  return names;
}

std::shared_ptr<Link> Links::find(const policy::Address& address) const {
  const auto it = links_.find(address);
  return it == links_.end() ? nullptr : it->second;
}

void Links::set(const policy::Address& address, const std::string& sandbox, policy::NetworkPolicy policy, Used used) {
  auto link = find(address);
  if (link &&
      link->sandbox() !=
          sandbox) {  // the address has passed to another sandbox: nothing of the old one stays
    remove(address);
    link.reset();
  }
  if (!link) {
    link = std::make_shared<Link>(address, sandbox, journal_);
    link->start_from(used.in, used.out);
    link->set_policy(std::move(policy), operator_);
    links_[address] = link;
  } else {
    link->set_policy(std::move(policy), operator_);
  }
}

void Links::remove(const policy::Address& address) {
  const auto it = links_.find(address);
  if (it == links_.end()) return;
  const auto link = it->second;
  links_.erase(it);
  link->remove();
}

void Links::set_operator(policy::Operator op) {
  if (op == operator_) return;
  operator_ = std::move(op);
  for (const auto& [address, link] : links_) link->set_operator(operator_);
}

}  // namespace glovebox::egress
