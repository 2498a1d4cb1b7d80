// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/flow.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "egress/internal/dns_server.h"
#include "egress/internal/http_session.h"
#include "http/framing.h"

namespace glovebox::egress {
namespace {

using policy::Protocol;

constexpr auto kHandshakeTime = std::chrono::seconds(10);
// How long a connection that hardly anything can allow may take to show what it is, so that the
// refusal can be a readable one.
constexpr auto kHopelessTime = std::chrono::seconds(3);
// How long we wait for a client to speak first where the server may do so instead.
constexpr auto kSilence = std::chrono::milliseconds(300);
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr size_t kLingerBytes = 1 << 20;
constexpr auto kHalfClosedTime = std::chrono::minutes(5);
constexpr size_t kReadBytes = 16 << 10, kMaxInput = 64 << 10;
// Fatal alert access_denied (RFC 8446, 6).
constexpr std::string_view kAccessDenied("\x15\x03\x03\x00\x02\x02\x31", 7);
constexpr std::string_view kTlsRule = "protocol:tls";

bool covers(const policy::Rule& rule, uint16_t port, bool when_empty) {
  if (rule.ports.empty()) return when_empty;
  return std::any_of(rule.ports.begin(), rule.ports.end(),
                     [&](const auto& range) { return range.first <= port && port <= range.last; });
}

bool allows_port(const policy::Rule& rule, uint16_t port) {
  return covers(rule, port, port == 80 || port == 443);
}

policy::Verdict refusal(std::string_view rule, std::string reason,
                        std::string how = "It is never passed on.") {
  return {false, std::string(rule), std::move(reason), std::move(how)};
}

}  // namespace

bool is_default(const policy::Verdict& verdict) {
  return verdict.rule.starts_with("default:") || verdict.rule == "operator.max_egress";
}

Flow::Flow(Core& core, std::shared_ptr<Link> link, UniqueFd client, Destination destination)
    : core_(core),
      link_(std::move(link)),
      client_(core.executor, std::move(client)),
      destination_(std::move(destination)),
      traffic_{*link_},
      id_(core.journal.next_flow()) {
  core_.flows.insert(this);
  link_->add(this);
  link_->mark_changed();
}

Flow::~Flow() {
  core_.flows.erase(this);
  link_->drop(this);
  link_->mark_changed();
}

Awaitable<void> Flow::run(std::shared_ptr<Flow> self) {
  if (is_service_address(*self->destination_.address) || self->destination_.port == 53) {
    co_await self->serve_service_address();
  } else {
    co_await self->converse();
  }
}

// Every query over TCP is ours to answer, whatever server it was meant for.
Awaitable<void> Flow::serve_service_address() {
  if (destination_.port == 53) {
    co_await serve_dns_stream(*this);
    co_return;
  }
  is_service_ = destination_.address->v4() == kPackagesAddress && destination_.port == 80 &&
                link_->has_packages();
  if (!is_service_) {
    refuse_raw(refusal("default:service",
                       "no service is offered to this sandbox at this address and port",
                       "Give the network policy a \"packages\" part to open the registry proxy."));
    co_return;
  }
  HttpSession session(*this, {});
  co_await session.run();
}

Awaitable<void> Flow::converse() {
  for (int depth = 0; depth < 2; ++depth) {
    const auto raw = judge_raw();
    if (raw.allowed && !do_names_matter()) {
      co_await run_raw(raw, false);
      co_return;
    }
    const Opening opening = co_await sniff(raw.allowed);
    if (traffic_.is_cut) co_return;
    if (opening == Opening::kTls) {
      if (!co_await run_tls(raw.allowed)) co_await run_raw(raw, false);
      co_return;
    }
    if (opening == Opening::kHttp) {
      HttpSession session(*this, raw);
      const auto end = co_await session.run();
      if (end == HttpSession::End::kTunnel) continue;
      if (end == HttpSession::End::kRaw) co_await run_raw(raw, false);
      co_return;
    }
    if (raw.allowed) {
      co_await run_raw(raw, opening == Opening::kUndecided);
    } else {
      refuse_raw(raw);
    }
    co_return;
  }
}

policy::Attempt Flow::attempt_for(Protocol protocol, std::string host) const {
  policy::Attempt attempt;
  attempt.protocol = protocol;
  attempt.host = std::move(host);
  attempt.port = destination_.port;
  if (attempt.host.empty()) attempt.address = destination_.address;
  return attempt;
}

policy::Verdict Flow::judge_raw() const {
  const auto& evaluator = link_->evaluator();
  if (!destination_.host.empty())
    return evaluator.decide(attempt_for(Protocol::kTcp, destination_.host));
  auto attempt = attempt_for(Protocol::kTcp, {});
  auto verdict = evaluator.decide(attempt);
  // The names that our resolver gave this sandbox this address for. A rule that forbids one of them
  // forbids the address.
  for (const auto& name : link_->names_of(*destination_.address)) {
    attempt.host = name;
    const auto named = evaluator.decide(attempt);
    if (!named.allowed && !is_default(named)) return named;
    if (!verdict.allowed) verdict = named;
  }
  return verdict;
}

// A name is judged without an address, since it will be resolved here. What no rule about names
// allows may still go to the very address that was dialled, when a rule about addresses says so;
// `attempt` then has that address.
policy::Verdict Flow::judge_named(policy::Attempt& attempt) const {
  const auto& evaluator = link_->evaluator();
  auto verdict = evaluator.decide(attempt);
  if (verdict.allowed || !is_default(verdict) || attempt.address || !destination_.address)
    return verdict;
  auto direct = attempt;
  direct.address = destination_.address;
  auto by_address = evaluator.decide(direct);
  if (!by_address.allowed) return is_default(by_address) ? verdict : by_address;
  attempt = std::move(direct);
  return by_address;
}

// Could it make a difference which name the sandbox says? Then its bytes must be seen before
// anything is opened.
bool Flow::do_names_matter() const {
  const auto& evaluator = link_->evaluator();
  const uint16_t port = destination_.port;
  for (const auto& rule : evaluator.deny()) {
    if (!rule.host.empty() && covers(rule, port, true)) return true;
  }
  return evaluator.egress() == policy::Egress::kOpen || has_rule_about_names();
}

// Is there an allow rule for TLS or HTTP on this port, and not for raw TCP only?
bool Flow::has_rule_about_names() const {
  const auto& rules = link_->evaluator().allow();
  const uint8_t raw = static_cast<uint8_t>(Protocol::kTcp) | static_cast<uint8_t>(Protocol::kUdp) |
                      static_cast<uint8_t>(Protocol::kIcmp);
  return std::any_of(rules.begin(), rules.end(), [&](const auto& rule) {
    return allows_port(rule, destination_.port) &&
           (rule.protocols == 0 || (rule.protocols & ~raw) != 0);
  });
}

Awaitable<bool> Flow::read_more() {
  if (input_.size() >= kMaxInput) co_return false;
  const size_t before = input_.size();
  while (!traffic_.is_cut) {
    input_.resize(before + kReadBytes);
    const ssize_t n = ::recv(client_.fd(), input_.data() + before, kReadBytes, MSG_DONTWAIT);
    const int error = errno;
    input_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0) co_return true;
    if (n == 0 || (error != EAGAIN && error != EINTR)) co_return false;
    if (!co_await client_.readable()) co_return false;
  }
  co_return false;
}

// What the first bytes are; kUndecided when the patience ended before they told. A soft end leaves
// the connection usable.
// `is_soft`: raw bytes are allowed, so that waiting for what could be a name must not hold them up.
Awaitable<Opening> Flow::sniff(bool is_soft) {
  const bool is_hopeless = !is_soft && !has_rule_about_names();
  const Clock::duration patience = is_soft       ? Clock::duration(kSilence)
                                   : is_hopeless ? kHopelessTime
                                                 : kHandshakeTime;
  const Deadline until = Clock::now() + patience;
  if (!is_soft) set_deadline(until);
  Opening opening = classify(input_);
  while (opening == Opening::kUndecided) {
    if (is_soft && input_.empty() && !co_await wait_readable(client_.fd(), until)) break;
    if (is_soft && !input_.empty())
      set_deadline(Clock::now() + kHandshakeTime);  // it has begun to speak
    // Letters may be the beginning of a request, or all that the client says before the server does.
    const bool may_be_text = !input_.empty() && static_cast<uint8_t>(input_[0]) != kHandshakeRecord && (is_soft || is_hopeless);
    if (may_be_text && !co_await wait_readable(client_.fd(), Clock::now() + kSilence)) {
      opening = Opening::kOther;
      break;
    }
    if (!co_await read_more()) break;
    opening = classify(input_);
  }
  set_deadline(Deadline::max());
  co_return opening;
}

Awaitable<Result<ClientHello>> Flow::read_hello() {
  set_deadline(Clock::now() + kHandshakeTime);
  while (true) {
    const auto hello = parse_client_hello(input_);
    if (!hello) co_return fail(hello.error());
    if (*hello) {
      set_deadline(Deadline::max());
      co_return **hello;
    }
    if (!co_await read_more()) co_return fail(Code::kTimeout, "the ClientHello was not completed");
  }
}

Awaitable<bool> Flow::run_tls(bool is_raw_allowed) {
  const auto hello = co_await read_hello();
  if (traffic_.is_cut) co_return true;
  if (!hello) {
    if (is_raw_allowed && hello.error().code != Code::kTimeout) co_return false;
    co_await refuse_tls(refusal(kTlsRule, hello.error().message), destination_.host);
    co_return true;
  }
  const std::string& host = hello->server_name;
  if (!destination_.host.empty() && host != destination_.host) {
    co_await refuse_tls(refusal("protocol:connect",
                                "the ClientHello names another server than the CONNECT it is in"),
                        host);
    co_return true;
  }
  auto attempt = attempt_for(Protocol::kTls, host);
  const auto verdict = judge_named(attempt);
  if (!verdict.allowed) {
    if (is_raw_allowed && is_default(verdict)) co_return false;
    co_await refuse_tls(verdict, host);
    co_return true;
  }
  co_await connect_and_relay(std::move(attempt),
                             hello->has_encrypted_hello ? "decided by the outer server name" : "",
                             false);
  co_return true;
}

// `verdict` has allowed the destination. `is_silent`: the client has not spoken, so its first bytes
// are still to be judged.
Awaitable<void> Flow::run_raw(policy::Verdict verdict, bool is_silent) {
  auto attempt = attempt_for(Protocol::kTcp, destination_.host);
  if (attempt.host.empty()) {
    // The name under which the rule matched, when it is not a rule about addresses.
    for (const auto& name : link_->names_of(*destination_.address)) {
      attempt.host = name;
      if (link_->evaluator().decide(attempt).rule == verdict.rule) break;
      attempt.host.clear();
    }
  }
  co_await connect_and_relay(std::move(attempt), {}, is_silent);
}

// Dials, tells the log, and moves bytes until the end.
Awaitable<void> Flow::connect_and_relay(policy::Attempt attempt, std::string note, bool is_silent) {
  const bool is_tls = attempt.protocol == Protocol::kTls;
  auto dialed = co_await dial(core_, link_, attempt, destination_.address);
  if (traffic_.is_cut) co_return;
  if (!dialed.verdict.allowed) {
    if (is_tls) {
      co_await refuse_tls(dialed.verdict, attempt.host, dialed.address);
    } else {
      refuse_raw(dialed.verdict, "tcp", attempt.host);
    }
    co_return;
  }
  Event opened = event("connection", policy::protocol_name(attempt.protocol));
  opened.host = attempt.host;
  if (dialed.address) opened.address = dialed.address->text();
  if (!dialed.stream) {
    set_failed(opened, dialed.verdict, dialed.failure);
    record(opened);
    abort();
    co_return;
  }
  attempt.address = dialed.address;
  upstream_ = std::move(dialed.stream);
  attempt_ = std::move(attempt);
  set_verdict(opened, dialed.verdict);
  opened.phase = "open";
  if (!note.empty()) opened.reason = std::move(note);
  record(opened);
  co_await relay(is_silent);
  opened.phase = "close";
  opened.bytes_out = traffic_.out;
  opened.bytes_in = traffic_.in;
  if (traffic_.is_cut) {
    opened.rule = cut_rule_;
    opened.reason = "cut: " + cut_reason_;
  }
  record(opened);
}

Awaitable<void> Flow::relay(bool is_silent) {
  const auto self = shared_from_this();
  struct Back {
    Notifier done;
    bool has_ended = false;
  };
  const auto back = std::make_shared<Back>();
  spawn(core_.executor, "egress.relay",
        [](std::shared_ptr<Flow> flow, std::shared_ptr<Back> b) -> Awaitable<void> {
          const auto end = co_await pump(flow->core_.pipes, flow->traffic_, Way::kIn,
                                         *flow->upstream_, flow->client_);
          flow->end_way(end, flow->client_);
          b->has_ended = true;
          b->done.notify();
        }(self, back));

  PumpEnd end = PumpEnd::kBroken;
  if (!is_silent || co_await judge_late()) {
    const std::string early = std::exchange(input_, {});
    if (co_await send_all(traffic_, Way::kOut, *upstream_, early)) {
      end = co_await pump(core_.pipes, traffic_, Way::kOut, client_, *upstream_);
    }
  }
  end_way(end, *upstream_);
  while (!back->has_ended) co_await back->done.wait();
}

// One direction is over. An end is passed on as such; anything else ends both.
void Flow::end_way(PumpEnd end, Watched& receiver) {
  if (end != PumpEnd::kEof) return abort();
  ::shutdown(receiver.fd(), SHUT_WR);
  is_half_closed_ = true;
}

// The server was let to speak first. Now the client does: what it says may still fall under a rule
// that denies a name.
Awaitable<bool> Flow::judge_late() {
  while (classify(input_) == Opening::kUndecided) {
    if (!co_await read_more()) co_return input_.empty() ? !client_.is_cancelled() : false;
  }
  policy::Attempt said = *attempt_;
  if (classify(input_) == Opening::kTls) {
    const auto hello = co_await read_hello();
    if (!hello) co_return hello.error().code != Code::kTimeout;
    said.protocol = Protocol::kTls;
    said.host = hello->server_name;
  } else if (classify(input_) == Opening::kHttp) {
    said.protocol = Protocol::kHttp;
    said.host = co_await read_host();
  } else {
    co_return true;
  }
  const auto verdict = link_->evaluator().decide(said);
  if (verdict.allowed || is_default(verdict)) co_return true;
  refuse_raw(verdict, policy::protocol_name(said.protocol), said.host);
  co_return false;
}

// The host of the HTTP request at the start of input(); empty when it names none that can be read.
Awaitable<std::string> Flow::read_host() {
  set_deadline(Clock::now() + kHandshakeTime);
  while (input_.find("\r\n\r\n") == input_.npos) {
    if (!co_await read_more()) break;
  }
  set_deadline(Deadline::max());
  http::Request request;
  const auto head =
      std::string_view(input_).substr(0, std::min(input_.size(), input_.find("\r\n\r\n") + 4));
  if (!http::parse_request_head(head, request)) co_return std::string();
  const auto plan = plan_request(request, destination_);
  co_return plan ? plan->host : std::string();
}

Awaitable<void> Flow::refuse_tls(const policy::Verdict& verdict, const std::string& host,
                                 std::optional<policy::Address> address) {
  Event refused = event("connection", "tls");
  refused.host = host;
  if (address) refused.address = address->text();
  set_verdict(refused, verdict);
  record(refused);
  if (co_await send_own(client_, kAccessDenied)) co_await linger();
}

void Flow::refuse_raw(const policy::Verdict& verdict, std::string_view protocol,
                      const std::string& host) {
  Event refused = event("connection", protocol);
  refused.host = host.empty() ? destination_.host : host;
  set_verdict(refused, verdict);
  record(refused);
  abort();
}

Awaitable<void> Flow::linger() {
  ::shutdown(client_.fd(), SHUT_WR);
  set_deadline(Clock::now() + kLingerTime);
  for (size_t taken = 0; taken < kLingerBytes;) {
    input_.clear();
    if (!co_await read_more()) break;
    taken += input_.size();
  }
  input_.clear();
}

void Flow::abort() {
  client_.abort();
  if (upstream_) upstream_->abort();
}

policy::Verdict Flow::judge_again() {
  if (is_service_ && !link_->has_packages())
    return refusal("policy", "the policy no longer opens the registry proxy");
  if (!attempt_)
    return {true, {}, {}, {}};  // nothing is open yet: it will be judged by the new policy
  return link_->evaluator().decide(*attempt_);
}

void Flow::cut(const policy::Verdict& why) {
  if (traffic_.is_cut) return;
  traffic_.is_cut = true;
  cut_rule_ = why.rule;
  cut_reason_ = why.reason;
  abort();
}

void Flow::check_deadline(Clock::time_point now) {
  const bool is_idle = is_half_closed_ && now - traffic_.last_byte > kHalfClosedTime;
  if (now < deadline_ && !is_idle) return;
  has_expired_ = true;
  client_.cancel();
  if (upstream_) upstream_->cancel();
}

Event Flow::event(std::string_view kind, std::string_view protocol) const {
  Event out;
  out.kind = kind;
  out.flow = id_;
  out.protocol = protocol;
  out.host = destination_.host;
  if (destination_.address) out.address = destination_.address->text();
  out.port = destination_.port;
  return out;
}

}  // namespace glovebox::egress
