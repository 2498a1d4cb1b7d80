// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/resolver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "egress/internal/watched.h"
#include "policy/egress.h"

namespace glovebox::egress {
namespace {

constexpr auto kAttemptTime = std::chrono::seconds(2), kTotalTime = std::chrono::seconds(6);
constexpr uint32_t kMinTtl = 5, kMaxTtl = 300;
constexpr size_t kMaxEntries = 10'000, kMaxAliases = 8, kMaxInFlight = 2048;
// Wrong answers that one attempt looks at before it gives up: somebody guesses ids.
constexpr int kMaxStrangers = 32;

uint16_t random_id() {
  const std::string bytes = random_bytes(2);
  return static_cast<uint16_t>(static_cast<uint8_t>(bytes[0]) << 8 |
                               static_cast<uint8_t>(bytes[1]));
}

Result<UniqueFd> open_connected(const ServerAddress& server, int type) {
  UniqueFd fd(::socket(server.storage.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("socket");
  const auto* address = reinterpret_cast<const sockaddr*>(&server.storage);
  if (::connect(fd.get(), address, server.length) != 0 && errno != EINPROGRESS)
    return fail_errno("connect to the name server");
  return fd;
}

Async<dns::Response> ask_udp(ServerAddress server, std::string name, Deadline deadline) {
  GB_CO_TRY(const auto fd, open_connected(server, SOCK_DGRAM));
  const uint16_t id = random_id();
  const std::string query = dns::build_query(id, name);
  if (::send(fd.get(), query.data(), query.size(), MSG_NOSIGNAL) < 0)
    co_return fail_errno("send to the name server");
  char buffer[4096];
  for (int strangers = 0; strangers < kMaxStrangers;) {
    const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EAGAIN) {
      if (!co_await wait_readable(fd.get(), deadline))
        co_return fail(Code::kTimeout, "the name server does not answer");
      continue;
    }
    if (n < 0) co_return fail_errno("receive from the name server");
    auto response = dns::parse_response({buffer, static_cast<size_t>(n)}, id, name);
    if (response) co_return response;
    ++strangers;
  }
  co_return fail(Code::kUnavailable, "the name server's answers do not belong to the question");
}

// Sends all of `out`, then reads a length and so many bytes.
Async<dns::Response> ask_tcp(Executor executor, ServerAddress server, std::string name,
                             Deadline deadline) {
  GB_CO_TRY(auto socket, open_connected(server, SOCK_STREAM));
  auto stream = std::make_shared<Watched>(executor, std::move(socket));
  const auto done = std::make_shared<Notifier>();
  spawn(executor, "egress.resolver_deadline",
        [](auto watched, auto finished, Deadline when) -> Awaitable<void> {
          if (!co_await finished->wait_until(when)) watched->cancel();
        }(stream, done, deadline));
  struct Finish {
    std::shared_ptr<Notifier> notifier;
    ~Finish() { notifier->notify(); }
  } finish{done};

  const uint16_t id = random_id();
  const std::string query = dns::build_query(id, name);
  std::string out = {static_cast<char>(query.size() >> 8), static_cast<char>(query.size())};
  out += query;
  while (!out.empty()) {
    if (!co_await stream->writable())
      co_return fail(Code::kTimeout, "the name server does not answer over TCP");
    const ssize_t n = ::send(stream->fd(), out.data(), out.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) co_return fail_errno("send to the name server");
    if (n > 0) out.erase(0, static_cast<size_t>(n));
  }
  std::string in;
  while (true) {
    const size_t wanted = in.size() < 2
                              ? 2
                              : 2 + (static_cast<size_t>(static_cast<uint8_t>(in[0])) << 8 |
                                     static_cast<uint8_t>(in[1]));
    if (in.size() >= 2 && in.size() >= wanted)
      co_return dns::parse_response(std::string_view(in).substr(2, wanted - 2), id, name);
    char buffer[4096];
    const ssize_t n = ::recv(stream->fd(), buffer, sizeof buffer, 0);
    if (n == 0) co_return fail(Code::kUnavailable, "the name server closed the connection");
    if (n < 0 && errno != EAGAIN) co_return fail_errno("receive from the name server");
    if (n > 0) in.append(buffer, static_cast<size_t>(n));
    if (n < 0 && !co_await stream->readable())
      co_return fail(Code::kTimeout, "the name server does not answer over TCP");
  }
}

}  // namespace

bool operator==(const ServerAddress& a, const ServerAddress& b) {
  return a.length == b.length && std::memcmp(&a.storage, &b.storage, a.length) == 0;
}

Result<ServerAddress> parse_server(std::string_view text) {
  const auto wrong = [&] {
    return fail(Code::kInvalidArgument, "resolvers: \"" + std::string(text) + "\" is no address");
  };
  ServerAddress out;
  std::string_view host = text;
  uint16_t port = 53;
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  if (colon != text.npos && (bracket != text.npos ? colon > bracket : text.find(':') == colon)) {
    const auto number = parse_int(text.substr(colon + 1));
    if (!number || *number < 1 || *number > 65535) return wrong();
    port = static_cast<uint16_t>(*number);
    host = text.substr(0, colon);
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto address = policy::parse_address(host);
  if (!address) return wrong();
  if (address->is_v6) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    std::copy(address->bytes.begin(), address->bytes.end(), in6->sin6_addr.s6_addr);
    out.length = sizeof *in6;
  } else {
    auto* in = reinterpret_cast<sockaddr_in*>(&out.storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    in->sin_addr.s_addr = htonl(address->v4());
    out.length = sizeof *in;
  }
  return out;
}

uint32_t Resolved::ttl(Clock::time_point now) const {
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(until - now).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(left, 1, kMaxTtl));
}

struct Resolver::Impl {
  struct Pending {
    Notifier done;
    std::optional<Result<Resolved>> result;
  };
  struct Entry {
    Resolved answer;
    std::list<std::string>::iterator age;
  };

  explicit Impl(Executor e) : executor(std::move(e)) {}

  void keep(const std::string& host, const Resolved& answer) {
    forget(host);
    if (cache.size() >= kMaxEntries) forget(std::string(ages.front()));
    ages.push_back(host);
    cache[host] = {answer, std::prev(ages.end())};
  }
  void forget(const std::string& host) {
    const auto it = cache.find(host);
    if (it == cache.end()) return;
    ages.erase(it->second.age);
    cache.erase(it);
  }

  Async<dns::Response> ask(std::string name, Deadline deadline);
  Async<Resolved> look_up(std::string host);

  Executor executor;
  std::vector<ServerAddress> servers;
  uint64_t generation = 0;  // of `servers`
  std::map<std::string, Entry> cache;
  std::list<std::string> ages;  // oldest first
  std::map<std::string, std::shared_ptr<Pending>> pending;
};

// Server after server until one has an opinion.
Async<dns::Response> Resolver::Impl::ask(std::string name, Deadline deadline) {
  const auto list = servers;
  Error last{Code::kUnavailable, "no name server is configured", {}};
  const size_t attempts = list.empty() ? 0 : std::max<size_t>(3, list.size());
  for (size_t i = 0; i < attempts && Clock::now() < deadline; ++i) {
    const ServerAddress& server = list[i % list.size()];
    const Deadline until = std::min(deadline, after(kAttemptTime));
    auto response = co_await ask_udp(server, name, until);
    if (response && response->is_truncated)
      response = co_await ask_tcp(executor, server, name, until);
    if (!response) {
      last = response.error();
      continue;
    }
    if (response->rcode == dns::kNoError || response->rcode == dns::kNxDomain) co_return response;
    last = Error{Code::kUnavailable,
                 "the name server answers with code " + std::to_string(response->rcode),
                 {}};
  }
  co_return fail(last);
}

Async<Resolved> Resolver::Impl::look_up(std::string host) {
  const Deadline deadline = after(kTotalTime);
  uint32_t ttl = kMaxTtl;
  std::string name = host;
  for (size_t hop = 0; hop <= kMaxAliases; ++hop) {
    auto asked = co_await ask(name, deadline);
    if (!asked) co_return fail(std::move(asked).error());
    const dns::Response& response = *asked;
    ttl = std::min(ttl, response.ttl);
    // A server that does not follow aliases itself leaves the rest to us.
    const bool goes_on = response.rcode == dns::kNoError && response.addresses.empty() &&
                         !response.alias.empty() && response.alias != name;
    if (!goes_on) {
      co_return Resolved{response.addresses,
                         after(std::chrono::seconds(std::clamp(ttl, kMinTtl, kMaxTtl)))};
    }
    name = policy::normal_host(response.alias);
    if (name.empty()) break;
  }
  co_return fail(Code::kUnavailable, "the name's aliases lead nowhere");
}

Resolver::Resolver(Executor executor) : impl_(std::make_shared<Impl>(std::move(executor))) {}
Resolver::~Resolver() = default;

void Resolver::set_servers(std::vector<ServerAddress> servers) {
  if (servers == impl_->servers) return;
  impl_->servers = std::move(servers);
  ++impl_->generation;
  impl_->cache.clear();
  impl_->ages.clear();
}

const Resolved* Resolver::cached(const std::string& host) {
  const auto it = impl_->cache.find(host);
  if (it == impl_->cache.end()) return nullptr;
  if (it->second.answer.until > Clock::now()) return &it->second.answer;
  impl_->forget(host);
  return nullptr;
}

Async<Resolved> Resolver::resolve(std::string host) {
  const auto impl = impl_;
  if (const auto* known = cached(host)) co_return *known;
  if (const auto it = impl->pending.find(host); it != impl->pending.end()) {
    const auto pending = it->second;
    while (!pending->result) co_await pending->done.wait();
    co_return *pending->result;
  }
  if (impl->pending.size() >= kMaxInFlight)
    co_return fail(Code::kUnavailable, "too many names are being looked up");
  const auto pending = std::make_shared<Impl::Pending>();
  impl->pending[host] = pending;
  const uint64_t generation = impl->generation;
  auto found = co_await impl->look_up(host);
  impl->pending.erase(host);
  if (found && generation == impl->generation) impl->keep(host, *found);
  pending->result = found;
  pending->done.notify();
  co_return found;
}

}  // namespace glovebox::egress
