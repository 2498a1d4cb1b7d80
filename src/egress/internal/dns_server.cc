// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/dns_server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "egress/internal/dns_message.h"
#include "egress/internal/flow.h"

namespace glovebox::egress {
namespace {

constexpr uint16_t kBlocked = 15, kProhibited = 18;  // RFC 8914
constexpr uint32_t kServiceTtl = 60;
constexpr size_t kMaxQuery = 4096;
constexpr int kQueriesPerStream = 1000;
constexpr auto kStreamIdleTime = std::chrono::seconds(10);
constexpr int kTurn = 64;  // queries taken before others have their turn

// One query on its way to an answer.
struct Asked {
  dns::Query query;
  bool is_stream = false;
};

Event query_event(const Asked& asked) {
  Event event;
  event.kind = "dns";
  event.protocol = asked.is_stream ? "tcp" : "udp";
  event.host = asked.query.name;
  event.port = 53;
  event.query_type = dns::type_name(asked.query.type);
  return event;
}

std::string finish(const Asked& asked, std::string answer) {
  return dns::fit(std::move(answer), asked.query,
                  asked.is_stream ? dns::kMaxMessageBytes : asked.query.udp_size);
}

std::string refuse(Link& link, const Asked& asked, const policy::Verdict& verdict) {
  Event event = query_event(asked);
  set_verdict(event, verdict);
  link.record(event);
  const uint16_t code = verdict.rule.starts_with("floor:") ? kBlocked : kProhibited;
  return finish(asked, dns::build_answer(asked.query, dns::kRefused, {}, 0,
                                         {code, verdict.rule + ": " + verdict.reason}));
}

// Types that a name server has to answer, but from which we say nothing: there is no IPv6, and no
// keys for hidden server names.
bool is_empty_type(uint16_t type) {
  return type == dns::kAaaa || type == dns::kHttps || type == dns::kSvcb;
}

policy::Verdict only_addresses() {
  return {false, "dns:type", "only addresses (type A) can be asked for",
          "No rule can allow other types."};
}

// What the policy, the limits and the type have to say before anybody is asked. Allowed: ask for
// the address.
policy::Verdict judge(Link& link, const dns::Query& query, const std::string& host) {
  if (!link.admit_query()) {
    return {false, "limit:dns", "more than 50 queries a second",
            "Ask less often; answers may be kept for their time to live."};
  }
  // Written in a way no host name is: nothing that a rule could name.
  if (host.empty())
    return {false, "floor:name", "\"" + query.name + "\" is no host name", "No rule can allow it."};
  return link.admit_name(host);
}

std::string answer_service(const Asked& asked) {
  const std::vector<policy::Address> address(asked.query.type == dns::kA ? 1 : 0,
                                             policy::address_v4(kPackagesAddress));
  return finish(asked, dns::build_answer(asked.query, dns::kNoError, address, kServiceTtl));
}

// The answer made of what the resolver found, after the floor.
std::string answer_with(Link& link, const Asked& asked, const std::string& host,
                        const Resolved& resolved) {
  std::vector<policy::Address> usable;
  std::string_view floor;
  for (const auto& address : resolved.addresses) {
    const auto range = link.evaluator().floor(host, address);
    if (range.empty()) {
      usable.push_back(address);
    } else {
      floor = range;
    }
  }
  if (usable.empty() && !resolved.addresses.empty()) {
    return refuse(link, asked,
                  {false, std::string(floor),
                   host + " has only addresses that are never reachable from a sandbox",
                   "No rule can allow it."});
  }
  Event event = query_event(asked);
  const auto verdict = link.evaluator().decide_name(host);
  set_verdict(event, verdict);
  if (usable.empty()) {
    set_failed(event, verdict, "there is no such name, or it has no IPv4 address");
    link.record(event);
    return finish(asked, dns::build_answer(asked.query, dns::kNxDomain));
  }
  link.pin(host, usable);
  event.address = usable[0].text();
  link.record(event);
  return finish(asked, dns::build_answer(asked.query, dns::kNoError, usable, resolved.ttl()));
}

// There are no IPv6 addresses, but that must sound like the answer for IPv4: libraries take "exists, without addresses" beside
// "cannot be resolved now" for final.
std::string answer_aaaa(const Asked& asked, const Resolved& resolved) {
  return finish(asked, dns::build_answer(asked.query, resolved.addresses.empty() ? dns::kNxDomain : dns::kNoError));
}

// Reads a query; the answer to one that cannot be read is in `failure`.
std::optional<Asked> read(Link& link, std::string_view message, bool is_stream,
                          std::string& failure) {
  auto query = dns::parse_query(message);
  if (query) return Asked{*std::move(query), is_stream};
  failure = dns::build_format_error(message);
  if (!link.admit_query()) failure.clear();
  Event event = query_event({{}, is_stream});
  event.query_type.clear();
  set_verdict(event, {false, "protocol:dns", "what was sent to port 53 is no DNS query",
                      "No rule can allow it."});
  link.record(event);
  return std::nullopt;
}

// An answer that needs no lookup; nothing when `host` has to be resolved.
std::optional<std::string> decide(Core& core, Link& link, const Asked& asked, std::string& host) {
  host = policy::normal_host(asked.query.name);
  if (host == kPackagesHost && link.has_packages() &&
      (asked.query.type == dns::kA || is_empty_type(asked.query.type))) {
    return answer_service(asked);
  }
  const auto verdict = judge(link, asked.query, host);
  if (!verdict.allowed) return refuse(link, asked, verdict);
  if (host == "glovebox.internal" || host.ends_with(".glovebox.internal")) {
    return refuse(link, asked,
                  {false, "default:service", "no such service is offered to this sandbox",
                   "No rule can allow it."});
  }
  const bool is_aaaa = asked.query.type == dns::kAaaa;
  if (is_empty_type(asked.query.type) && !is_aaaa)
    return finish(asked, dns::build_answer(asked.query, dns::kNoError));
  if (asked.query.type != dns::kA && !is_aaaa) return refuse(link, asked, only_addresses());
  if (const auto* known = core.resolver.cached(host))
    return is_aaaa ? answer_aaaa(asked, *known) : answer_with(link, asked, host, *known);
  return std::nullopt;
}

Awaitable<std::string> look_up(Core& core, Link& link, const Asked& asked,
                               const std::string& host) {
  if (!link.begin_lookup()) {
    co_return refuse(link, asked,
                     {false, "limit:dns", "too many names are being looked up",
                      "Ask for fewer names at a time."});
  }
  const auto resolved = co_await core.resolver.resolve(host);
  link.end_lookup();
  const bool is_aaaa = asked.query.type == dns::kAaaa;
  if (resolved && is_aaaa) co_return answer_aaaa(asked, *resolved);
  if (resolved) co_return answer_with(link, asked, host, *resolved);
  if (is_aaaa) co_return finish(asked, dns::build_answer(asked.query, dns::kServFail));  // the query for IPv4 is in the log
  Event event = query_event(asked);
  set_failed(event, link.evaluator().decide_name(host),
             "the name could not be resolved: " + resolved.error().message);
  link.record(event);
  co_return finish(asked, dns::build_answer(asked.query, dns::kServFail));
}

}  // namespace

DnsServer::DnsServer(Core& core, UniqueFd socket)
    : core_(core), socket_(std::make_shared<Watched>(core.executor, std::move(socket))) {}

namespace {

// To whom an answer goes, and from which address: the one that was asked, so that the redirection
// in the kernel finds the query.
struct Peer {
  sockaddr_in address{};
  in_addr asked{};
};

void send_answer(int fd, const Peer& peer, std::string answer) {
  if (answer.empty()) return;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(in_pktinfo))] = {};
  Peer to = peer;
  iovec data{answer.data(), answer.size()};
  msghdr message{};
  message.msg_name = &to.address;
  message.msg_namelen = sizeof to.address;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = IPPROTO_IP;
  header->cmsg_type = IP_PKTINFO;
  header->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  in_pktinfo info{};
  info.ipi_spec_dst = peer.asked;
  std::memcpy(CMSG_DATA(header), &info, sizeof info);
  ::sendmsg(fd, &message,
            MSG_DONTWAIT | MSG_NOSIGNAL);  // a full queue loses the answer, as the network may
}

// One datagram; its length, or below 0 with errno.
ssize_t receive(int fd, Peer& peer, char* buffer, size_t size) {
  alignas(cmsghdr) char control[256];
  iovec data{buffer, size};
  msghdr message{};
  message.msg_name = &peer.address;
  message.msg_namelen = sizeof peer.address;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT);
  if (n < 0) return n;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != IPPROTO_IP || header->cmsg_type != IP_PKTINFO) continue;
    in_pktinfo info;
    std::memcpy(&info, CMSG_DATA(header), sizeof info);
    peer.asked = info.ipi_spec_dst;
  }
  return n;
}

Awaitable<void> look_up_and_send(Core& core, std::shared_ptr<Link> link, Asked asked,
                                 std::string host, Peer peer, std::shared_ptr<Watched> socket) {
  send_answer(socket->fd(), peer, co_await look_up(core, *link, asked, host));
}

}  // namespace

Awaitable<void> DnsServer::run() {
  char buffer[kMaxQuery];
  for (int turn = 0;; ++turn) {
    Peer peer;
    const ssize_t n = receive(socket_->fd(), peer, buffer, sizeof buffer);
    if (n < 0 && errno != EAGAIN) continue;  // an ICMP error of an earlier answer
    if (n < 0 || turn >= kTurn) {
      turn = 0;
      if (n < 0 && !co_await socket_->readable()) co_return;
      if (n < 0) continue;
      co_await yield();
    }
    const std::string_view message(buffer, static_cast<size_t>(n));
    const auto link = core_.links.find(policy::address_v4(ntohl(peer.address.sin_addr.s_addr)));
    if (!link) continue;
    std::string host, answer;
    auto asked = read(*link, message, false, answer);
    if (asked) {
      auto decided = decide(core_, *link, *asked, host);
      if (!decided) {
        spawn(core_.executor, "egress.dns",
              look_up_and_send(core_, link, *std::move(asked), host, peer, socket_));
        continue;
      }
      answer = *std::move(decided);
    }
    send_answer(socket_->fd(), peer, std::move(answer));
  }
}

Awaitable<void> serve_dns_stream(Flow& flow) {
  for (int i = 0; i < kQueriesPerStream; ++i) {
    flow.set_deadline(Clock::now() + kStreamIdleTime);
    auto& input = flow.input();
    size_t length = 0;
    while (true) {
      if (input.size() >= 2)
        length = static_cast<size_t>(static_cast<uint8_t>(input[0])) << 8 |
                 static_cast<uint8_t>(input[1]);
      if (length > kMaxQuery) co_return;
      if (input.size() >= 2 && input.size() >= 2 + length) break;
      if (!co_await flow.read_more()) co_return;
    }
    const std::string message = input.substr(2, length);
    input.erase(0, 2 + length);
    std::string host, answer;
    const auto asked = read(flow.link(), message, true, answer);
    if (asked) {
      auto decided = decide(flow.core(), flow.link(), *asked, host);
      if (decided) {
        answer = *std::move(decided);
      } else {
        answer = co_await look_up(flow.core(), flow.link(), *asked, host);
      }
    }
    if (answer.empty() || flow.traffic().is_cut) co_return;
    std::string out = {static_cast<char>(answer.size() >> 8), static_cast<char>(answer.size())};
    if (!co_await send_own(flow.client(), out + answer)) co_return;
  }
}

}  // namespace glovebox::egress
