// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/dialer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace glovebox::egress {
namespace {

constexpr auto kConnectTime = std::chrono::seconds(5), kDialTime = std::chrono::seconds(15);
constexpr size_t kMaxTries = 4;

sockaddr_in to_socket_address(const policy::Address& address, uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(address.v4());
  return out;
}

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

// The connection leads back to this host by an address that nobody told us is its own.
bool is_own_address(int fd, const policy::Address& address) {
  sockaddr_in local{};
  socklen_t length = sizeof local;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
         ntohl(local.sin_addr.s_addr) == address.v4();
}

// A pending connect ends when the socket is writable.
Awaitable<Result<void>> finish_connect(Core& core, Watched& stream, Deadline deadline) {
  struct Timer {
    Notifier done;
    bool is_late = false;
  };
  const auto timer = std::make_shared<Timer>();
  spawn(core.executor, "egress.connect_deadline",
        [](auto t, Watched* watched, Deadline when) -> Awaitable<void> {
          if (co_await t->done.wait_until(when) || t->is_late) co_return;
          t->is_late = true;
          watched->cancel();
        }(timer, &stream, deadline));
  const bool is_ready = co_await stream.writable();
  const bool was_late = timer->is_late;
  timer->is_late = true;  // the timer must not touch the stream any more
  timer->done.notify();
  if (!is_ready)
    co_return fail(Code::kTimeout, was_late ? "no answer to the connection attempt"
                                            : "the connection attempt was given up");
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(stream.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) co_return fail_errno("connect", error);
  co_return Result<void>();
}

Awaitable<Result<Watched>> connect_to(Core& core, policy::Address address, uint16_t port,
                                      Deadline deadline) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) co_return fail_errno("socket");
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, 60);
  const auto target = to_socket_address(address, port);
  const int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target);
  if (rc != 0 && errno != EINPROGRESS) co_return fail_errno("connect");
  Watched stream(core.executor, std::move(fd));
  if (rc != 0) {
    const auto finished = co_await finish_connect(core, stream, deadline);
    if (!finished) co_return fail(finished.error());
  }
  if (policy::special_range(address).empty() && is_own_address(stream.fd(), address)) {
    co_return fail(Code::kForbidden, "the address is the host's own");
  }
  co_return stream;
}

// The addresses that may be dialled, in order; the verdict of the first one refused when none may.
struct Candidates {
  std::vector<policy::Address> addresses;
  policy::Verdict verdict;
  policy::Address refused;
};
Candidates choose(const policy::Evaluator& evaluator, policy::Attempt attempt,
                  std::vector<policy::Address> all,
                  const std::optional<policy::Address>& preferred) {
  Candidates out;
  bool have_refusal = false;
  if (const auto it = std::find(all.begin(), all.end(), preferred); it != all.end())
    std::rotate(all.begin(), it, it + 1);
  for (const auto& address : all) {
    attempt.address = address;
    auto verdict = evaluator.decide(attempt);
    if (verdict.allowed) {
      if (out.addresses.empty()) out.verdict = std::move(verdict);
      out.addresses.push_back(address);
    } else if (out.addresses.empty() && !have_refusal) {
      out.verdict = std::move(verdict);
      out.refused = address;
      have_refusal = true;
    }
  }
  return out;
}

// Fills in where to go: the addresses of the host, or the one address that was asked for.
Awaitable<std::vector<policy::Address>> find_addresses(Core& core, Link& link,
                                                       const policy::Attempt& attempt,
                                                       Dialed& out) {
  if (attempt.address) co_return std::vector<policy::Address>(1, *attempt.address);
  const auto name = link.admit_name(attempt.host);
  if (!name.allowed) {
    out.verdict = name;
    co_return std::vector<policy::Address>();
  }
  auto resolved = co_await core.resolver.resolve(attempt.host);
  if (!resolved) {
    out.failure = "the name could not be resolved: " + resolved.error().message;
  } else if (resolved->addresses.empty()) {
    out.failure = "there is no such name, or it has no IPv4 address";
  } else {
    co_return resolved->addresses;
  }
  co_return std::vector<policy::Address>();
}

}  // namespace

Awaitable<Dialed> dial(Core& core, std::shared_ptr<Link> link, policy::Attempt attempt,
                       std::optional<policy::Address> preferred) {
  Dialed out;
  const Deadline deadline = after(kDialTime);
  out.verdict = link->evaluator().decide(attempt);
  if (!out.verdict.allowed) co_return out;
  auto all = co_await find_addresses(core, *link, attempt, out);
  if (all.empty()) co_return out;
  auto candidates = choose(link->evaluator(), attempt, std::move(all), preferred);
  out.verdict = std::move(candidates.verdict);
  if (candidates.addresses.empty()) {
    out.address = candidates.refused;
    co_return out;
  }
  if (candidates.addresses.size() > kMaxTries) candidates.addresses.resize(kMaxTries);
  for (const auto& address : candidates.addresses) {
    out.address = attempt.address = address;
    auto stream =
        co_await connect_to(core, address, attempt.port, std::min(deadline, after(kConnectTime)));
    out.verdict = link->evaluator().decide(attempt);  // it may have changed meanwhile
    if (!out.verdict.allowed || link->is_gone()) co_return out;
    if (stream) {
      out.stream = *std::move(stream);
      co_return out;
    }
    out.failure = stream.error().message;
    if (stream.error().code == Code::kForbidden) {
      out.verdict = {false, "floor:host", "the address is one of the host's own",
                     "No rule can allow it."};
    }
  }
  co_return out;
}

Awaitable<std::optional<Watched>> dial_unix(Core& core, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) co_return std::nullopt;
  std::memcpy(address.sun_path, path.data(), path.size());
  for (int i = 0; i < 50; ++i) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) co_return std::nullopt;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      co_return Watched(core.executor, std::move(fd));
    }
    if (errno != EAGAIN) co_return std::nullopt;
    co_await sleep_for(std::chrono::milliseconds(20));  // its queue is full
  }
  co_return std::nullopt;
}

}  // namespace glovebox::egress
