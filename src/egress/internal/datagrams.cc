// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/datagrams.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "base/random.h"

namespace glovebox::egress {
namespace {

constexpr size_t kMaxFlows = 4096;
constexpr auto kUdpIdle = std::chrono::seconds(60), kEchoIdle = std::chrono::seconds(20);
constexpr uint8_t kEchoRequest = 8, kEchoReply = 0;
constexpr size_t kMaxDatagram = 1472;  // what fits a link's packets of 1500 bytes: larger answers
                                       // are lost, as on a path with that limit

sockaddr_in socket_address(const policy::Address& address, uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(address.v4());
  return out;
}

// All or nothing of the bandwidth for one datagram.
bool take_bandwidth(TokenBucket& bucket, size_t bytes) {
  const uint64_t got = bucket.take(bytes);
  if (got == bytes) return true;
  bucket.give_back(got);
  return false;
}

}  // namespace

// One UDP flow, or one series of pings.
class DatagramFlow : public Cuttable {
 public:
  DatagramFlow(DatagramRelay& relay, DatagramRelay::Key k, std::shared_ptr<Link> l,
               const policy::Verdict& verdict)
      : key(std::move(k)), link(std::move(l)), relay_(relay) {
    link->add(this);
    event_.flow = link->journal().next_flow();
    event_.protocol = is_echo() ? "icmp" : "udp";
    event_.address = destination().text();
    event_.port = port();
    event_.phase = "open";
    set_verdict(event_, verdict);
    link->record(event_);
  }
  ~DatagramFlow() override {
    link->drop(this);
    event_.phase = "close";
    event_.bytes_out = out;
    event_.bytes_in = in;
    link->record(event_);
  }

  const policy::Address& destination() const { return std::get<2>(key); }
  uint16_t own_port() const { return std::get<1>(key); }
  uint16_t port() const { return std::get<3>(key); }
  bool is_echo() const { return std::get<4>(key); }

  policy::Verdict judge_again() override {
    policy::Attempt attempt;
    attempt.protocol = is_echo() ? policy::Protocol::kIcmp : policy::Protocol::kUdp;
    attempt.address = destination();
    attempt.port = port();
    return link->evaluator().decide(attempt);
  }
  void cut(const policy::Verdict& why) override {
    event_.rule = why.rule;
    event_.reason = "cut: " + why.reason;
    end();
  }
  void end() {
    is_over = true;
    if (socket) socket->cancel();
    const auto it = relay_.flows_.find(key);
    if (it == relay_.flows_.end() || it->second.get() != this) return;
    const auto self = it->second;  // may be the last one, and this is still running
    relay_.flows_.erase(it);
    relay_.by_identifier_.erase(identifier);
  }
  void count_out(size_t bytes) {
    out += bytes;
    used_at = Clock::now();
    link->count_out(bytes);
  }
  void count_in(size_t bytes) {
    in += bytes;
    used_at = Clock::now();
    link->count_in(bytes);
  }
  void deliver(const std::string& packet) { relay_.deliver(link->address(), packet); }

  const DatagramRelay::Key key;
  const std::shared_ptr<Link> link;
  std::optional<Watched> socket;  // UDP
  uint16_t identifier = 0;        // echo
  Clock::time_point used_at = Clock::now();
  uint64_t out = 0, in = 0;
  bool is_over = false;

 private:
  DatagramRelay& relay_;
  Event event_;
};

DatagramRelay::DatagramRelay(Core& core, UniqueFd raw, UniqueFd echo)
    : core_(core),
      raw_(std::move(raw)),
      echo_(std::make_shared<Watched>(core.executor, std::move(echo))) {
  const std::string bytes = random_bytes(2);
  next_identifier_ =
      static_cast<uint16_t>(static_cast<uint8_t>(bytes[0]) << 8 | static_cast<uint8_t>(bytes[1]));
}
DatagramRelay::~DatagramRelay() = default;

void DatagramRelay::pass(const std::shared_ptr<Link>& link, const Packet& packet,
                         const policy::Verdict& verdict) {
  const bool is_echo = packet.kind == PacketKind::kEcho;
  const Key key{link->address(), packet.source_port, packet.destination,
                is_echo ? uint16_t{0} : packet.port, is_echo};
  const auto it = flows_.find(key);
  const auto flow = it != flows_.end() ? it->second : open(key, link, verdict);
  if (!flow || !take_bandwidth(link->out_bucket(), packet.payload.size())) return;
  if (is_echo) {
    const std::string request =
        build_echo(kEchoRequest, flow->identifier, packet.port, packet.payload);
    const auto to = socket_address(packet.destination, 0);
    ::sendto(echo_->fd(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&to), sizeof to);
  } else {
    ::send(flow->socket->fd(), packet.payload.data(), packet.payload.size(),
           MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  flow->count_out(packet.payload.size());
}

std::shared_ptr<DatagramFlow> DatagramRelay::open(const Key& key, const std::shared_ptr<Link>& link,
                                                  const policy::Verdict& verdict) {
  auto admitted = link->admit();
  if (flows_.size() >= kMaxFlows)
    admitted = {false, "limit:connections", "this server relays too many UDP flows",
                "Try again later."};
  if (!admitted.allowed) {
    Event event;
    event.protocol = std::get<4>(key) ? "icmp" : "udp";
    event.address = std::get<2>(key).text();
    event.port = std::get<3>(key);
    set_verdict(event, admitted);
    link->record(event);
    return nullptr;
  }
  UniqueFd fd;
  if (!std::get<4>(key)) {
    fd.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const auto to = socket_address(std::get<2>(key), std::get<3>(key));
    if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return nullptr;
  }
  const auto flow = std::make_shared<DatagramFlow>(*this, key, link, verdict);
  flows_[key] = flow;
  if (!flow->is_echo()) {
    flow->socket.emplace(core_.executor, std::move(fd));
    spawn(core_.executor, "egress.udp", take_answers(flow));
    return flow;
  }
  while (by_identifier_.contains(next_identifier_))
    ++next_identifier_;  // there are fewer flows than numbers
  flow->identifier = next_identifier_++;
  by_identifier_[flow->identifier] = flow;
  return flow;
}

Awaitable<void> DatagramRelay::take_answers(std::shared_ptr<DatagramFlow> flow) {
  char buffer[kMaxDatagram + 1];
  for (int turn = 0; !flow->is_over; ++turn) {
    const ssize_t n = ::recv(flow->socket->fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
      if (!co_await flow->socket->readable()) co_return;
      continue;
    }
    if (turn % 64 == 63) co_await yield();
    // Below 0: an ICMP error, after which the flow may go on.
    if (n < 0 || static_cast<size_t>(n) > kMaxDatagram || flow->is_over) continue;
    const auto size = static_cast<size_t>(n);
    if (!take_bandwidth(flow->link->in_bucket(), size)) continue;
    flow->deliver(build_udp(flow->destination(), flow->port(), flow->link->address(),
                            flow->own_port(), {buffer, size}));
    flow->count_in(size);
  }
}

Awaitable<void> DatagramRelay::take_echo_replies() {
  char buffer[2048];
  for (int turn = 0;; ++turn) {
    sockaddr_in from{};
    socklen_t length = sizeof from;
    const ssize_t n = ::recvfrom(echo_->fd(), buffer, sizeof buffer, MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &length);
    if (n < 0 && !co_await echo_->readable()) co_return;
    if (turn % 64 == 63) co_await yield();
    if (n < 28) continue;
    const size_t header = static_cast<size_t>(static_cast<uint8_t>(buffer[0]) & 15) * 4;
    const std::string_view message = std::string_view(buffer, static_cast<size_t>(n))
                                         .substr(std::min<size_t>(header, static_cast<size_t>(n)));
    if (message.size() < 8 || message[0] != static_cast<char>(kEchoReply)) continue;
    const auto word = [&](size_t i) {
      return static_cast<uint16_t>(static_cast<uint8_t>(message[i]) << 8 |
                                   static_cast<uint8_t>(message[i + 1]));
    };
    const auto it = by_identifier_.find(word(4));
    const auto flow = it != by_identifier_.end() ? it->second.lock() : nullptr;
    if (!flow || flow->destination().v4() != ntohl(from.sin_addr.s_addr)) continue;
    const auto payload = message.substr(8);
    if (!take_bandwidth(flow->link->in_bucket(), payload.size())) continue;
    flow->deliver(build_icmp_packet(flow->destination(), flow->link->address(),
                                    build_echo(kEchoReply, flow->own_port(), word(6), payload)));
    flow->count_in(payload.size());
  }
}

void DatagramRelay::deliver(const policy::Address& to, const std::string& packet) {
  const auto address = socket_address(to, 0);
  ::sendto(raw_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

void DatagramRelay::sweep(Clock::time_point now) {
  std::vector<std::shared_ptr<DatagramFlow>> idle;
  for (const auto& [key, flow] : flows_) {
    if (now - flow->used_at > (flow->is_echo() ? kEchoIdle : kUdpIdle)) idle.push_back(flow);
  }
  for (const auto& flow : idle) flow->end();
}

}  // namespace glovebox::egress
