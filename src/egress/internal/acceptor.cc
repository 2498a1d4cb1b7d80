// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "base/log.h"
#include "egress/internal/flow.h"

namespace glovebox::egress {
namespace {

constexpr int kOriginalDestination =
    80;  // SO_ORIGINAL_DST of linux/netfilter_ipv4.h, which cannot be included next to netinet/in.h
constexpr int kTurn = 64;

policy::Address to_address(const sockaddr_in& in) {
  return policy::address_v4(ntohl(in.sin_addr.s_addr));
}

void reset(UniqueFd fd) {
  const linger now{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// Where the sandbox wanted to go before the redirection; nothing when there was none.
std::optional<Destination> original_destination(int fd) {
  sockaddr_in original{}, local{};
  socklen_t length = sizeof original, local_length = sizeof local;
  if (::getsockopt(fd, IPPROTO_IP, kOriginalDestination, &original, &length) != 0)
    return std::nullopt;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) != 0)
    return std::nullopt;
  if (original.sin_addr.s_addr == local.sin_addr.s_addr && original.sin_port == local.sin_port)
    return std::nullopt;
  return Destination{{}, to_address(original), ntohs(original.sin_port)};
}

void refuse(Core& core, Link& link, const std::optional<Destination>& destination,
            const policy::Verdict& verdict) {
  Event event;
  event.flow = core.journal.next_flow();
  if (destination) {
    event.address = destination->address->text();
    event.port = destination->port;
  }
  set_verdict(event, verdict);
  link.record(event);
}

void take(Core& core, UniqueFd client, const sockaddr_in& peer) {
  const auto link = core.links.find(to_address(peer));
  if (!link) return reset(std::move(client));
  const auto destination = original_destination(client.get());
  auto verdict = link->admit();
  if (!destination)
    verdict = {false, "default:service", "the proxy's own port was dialled",
               "Dial the host itself."};
  if (core.flows.size() >= core.max_flows) {
    verdict = {false, "limit:connections", "this server has too many connections open",
               "Try again later."};
  }
  if (!verdict.allowed) {
    refuse(core, *link, destination, verdict);
    return reset(std::move(client));
  }
  for (const int option : {TCP_NODELAY}) {
    const int on = 1;
    ::setsockopt(client.get(), IPPROTO_TCP, option, &on, sizeof on);
  }
  const int on = 1;
  ::setsockopt(client.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  spawn(core.executor, "egress.flow",
        Flow::run(std::make_shared<Flow>(core, link, std::move(client), *destination)));
}

}  // namespace

Awaitable<void> accept_flows(Core& core, UniqueFd socket) {
  Watched listener(core.executor, std::move(socket));
  for (int turn = 0;; ++turn) {
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    UniqueFd client(::accept4(listener.fd(), reinterpret_cast<sockaddr*>(&peer), &length,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client) {
      take(core, std::move(client), peer);
      if (turn % kTurn == kTurn - 1) co_await yield();
    } else if (errno == EAGAIN) {
      if (!co_await listener.readable()) co_return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log::warn("egress.accept_failed", {{"reason", errno_text(errno)}});
      co_await sleep_for(std::chrono::milliseconds(50));
    }
  }
}

Awaitable<void> watch_deadlines(Core& core) {
  while (co_await sleep_for(std::chrono::milliseconds(500))) {
    const auto now = Clock::now();
    for (auto* flow : std::vector<Flow*>(core.flows.begin(), core.flows.end()))
      flow->check_deadline(now);
    for (const auto& [address, link] : core.links.all()) link->flush_events();
  }
}

}  // namespace glovebox::egress
