// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/dial.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace glovebox::agent {
namespace {

using channel::Type;
constexpr std::chrono::seconds kConnectTimeout{10};

void add_ipv4(std::deque<sockaddr_in6>& out, const in_addr& address, uint16_t port) {
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  ipv4.sin_addr = address;
  sockaddr_in6 stored = {};
  std::memcpy(&stored, &ipv4, sizeof ipv4);
  out.push_back(stored);
}

void add_ipv6(std::deque<sockaddr_in6>& out, const in6_addr& address, uint16_t port) {
  sockaddr_in6 ipv6 = {};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  ipv6.sin6_addr = address;
  out.push_back(ipv6);
}

// Numbers only: the agent resolves no names.
Result<std::deque<sockaddr_in6>> parse_host(const std::string& host, uint16_t port) {
  std::deque<sockaddr_in6> out;
  in_addr ipv4;
  in6_addr ipv6;
  if (host == "localhost") {
    ipv4.s_addr = htonl(INADDR_LOOPBACK);
    add_ipv4(out, ipv4, port);
    add_ipv6(out, in6addr_loopback, port);
  } else if (::inet_pton(AF_INET, host.c_str(), &ipv4) == 1) {
    add_ipv4(out, ipv4, port);
  } else if (::inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) {
    add_ipv6(out, ipv6, port);
  } else {
    return fail(Code::kInvalidArgument, "host: an IP address or localhost");
  }
  return out;
}

Error connect_error(int error) {
  const Code code = error == ETIMEDOUT                  ? Code::kTimeout
                    : error == EACCES || error == EPERM ? Code::kPermissionDenied
                    : error == EMFILE                   ? Code::kOpenFileLimit
                                                        : Code::kUnavailable;
  return Error{code, "connect: " + errno_text(error), {}};
}

}  // namespace

Result<void> Dials::open(uint32_t channel, const json::object& fields) {
  GB_TRY(const int64_t port, int_field(fields, "port", 0, 1, 65535));
  if (port == 0) return fail(Code::kInvalidArgument, "port: is missing");
  GB_TRY(const std::string host, text_field(fields, "host", "localhost"));
  GB_TRY(auto addresses, parse_host(host, static_cast<uint16_t>(port)));
  if (dials_.size() >= kMaxDials) return fail(Code::kCapacity, "1024 connections are open");
  auto dial = std::make_unique<Dial>();
  dial->channel = channel;
  dial->addresses = std::move(addresses);
  dial->timer = loop_.in(kConnectTimeout, [this, channel] {
    Dial* late = find(channel);
    if (late != nullptr) break_off(*late, "connect", ETIMEDOUT);
  });
  Dial& opened = *(dials_[channel] = std::move(dial));
  connect_next(opened, ECONNREFUSED);
  return {};
}

void Dials::connect_next(Dial& dial, int last_error) {
  while (!dial.addresses.empty()) {
    const sockaddr_in6 address = dial.addresses.front();
    dial.addresses.pop_front();
    if (dial.fd) loop_.unwatch(dial.fd.get());
    dial.fd.reset(::socket(address.sin6_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!dial.fd) {
      last_error = errno;
      continue;
    }
    const socklen_t size = address.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof address;
    const int result = ::connect(dial.fd.get(), reinterpret_cast<const sockaddr*>(&address), size);
    if (result != 0 && errno != EINPROGRESS) {
      last_error = errno;
      continue;
    }
    loop_.watch(dial.fd.get(), EPOLLOUT,
                [this, channel = dial.channel](uint32_t events) { on_ready(channel, events); });
    return;
  }
  break_off(dial, "connect", last_error);
}

void Dials::break_off(Dial& dial, const std::string& what, int error) {
  if (dial.connected) {
    outbox_.send(dial.channel, Type::kEnd,
                 error_response(Error{Code::kUnavailable, what + ": " + errno_text(error), {}}));
  } else {
    outbox_.send(dial.channel, Type::kResponse, error_response(connect_error(error)));
  }
  remove(dial.channel);
}

Dials::Dial* Dials::find(uint32_t channel) {
  auto found = dials_.find(channel);
  return found == dials_.end() ? nullptr : found->second.get();
}

void Dials::remove(uint32_t channel) {
  Dial* dial = find(channel);
  if (dial == nullptr) return;
  loop_.cancel(dial->timer);
  if (dial->fd) loop_.unwatch(dial->fd.get());
  dials_.erase(channel);
}

void Dials::clear() {
  while (!dials_.empty()) remove(dials_.begin()->first);
}

void Dials::on_ready(uint32_t channel, uint32_t events) {
  Dial* dial = find(channel);
  if (dial == nullptr) return;
  if (!dial->connected) return on_connected(*dial);
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0 && !write_some(*dial)) return;
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 && may_read(*dial) && !read_some(*dial))
    return;
  // Nothing is left to be read, so nobody else would notice, and the loop would be told for ever.
  if ((events & EPOLLERR) != 0 && dial->read_ended) return break_off(*dial, "connection", ECONNRESET);
  update(*dial);
}

void Dials::on_connected(Dial& dial) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(dial.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return connect_next(dial, error);
  loop_.cancel(dial.timer);
  dial.connected = true;
  const int on = 1;
  ::setsockopt(dial.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  outbox_.send(dial.channel, Type::kResponse, to_text({{"ok", true}}));
  if (write_some(dial)) update(dial);
}

bool Dials::may_read(const Dial& dial) const {
  return dial.connected && !dial.read_ended && dial.sent < dial.allowed && outbox_.has_room();
}

// False when the connection is gone; so write_some().
bool Dials::read_some(Dial& dial) {
  char buffer[channel::kMaxPayloadFromAgent];
  const size_t limit = std::min<uint64_t>(sizeof buffer, dial.allowed - dial.sent);
  const ssize_t n = ::recv(dial.fd.get(), buffer, limit, 0);
  if (n > 0) {
    dial.sent += static_cast<uint64_t>(n);
    outbox_.send(dial.channel, Type::kData, std::string_view(buffer, static_cast<size_t>(n)));
    return true;
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n < 0) {
    break_off(dial, "connection", errno);
    return false;
  }
  dial.read_ended = true;
  outbox_.send(dial.channel, Type::kEnd);
  return true;
}

bool Dials::write_some(Dial& dial) {
  while (dial.output_at < dial.output.size()) {
    const ssize_t n = ::send(dial.fd.get(), dial.output.data() + dial.output_at,
                             dial.output.size() - dial.output_at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      break_off(dial, "connection", errno);
      return false;
    }
    dial.output_at += static_cast<size_t>(n);
    dial.received += static_cast<uint64_t>(n);
  }
  if (dial.output_at == dial.output.size()) {
    dial.output.clear();
    dial.output_at = 0;
    if (dial.write_ended && !dial.shut) {
      ::shutdown(dial.fd.get(), SHUT_WR);
      dial.shut = true;
    }
  }
  if (dial.received + channel::kWindowBytes / 2 >= dial.granted) {
    dial.granted = dial.received + channel::kWindowBytes;
    std::string payload;
    channel::append_u64(payload, dial.granted);
    outbox_.send(dial.channel, Type::kWindow, payload);
  }
  return true;
}

void Dials::update(Dial& dial) {
  if (!dial.connected) return;
  if (dial.read_ended && dial.shut) return remove(dial.channel);
  uint32_t events = may_read(dial) ? EPOLLIN : 0u;
  if (dial.output_at < dial.output.size()) events |= EPOLLOUT;
  loop_.change(dial.fd.get(), events);
}

void Dials::pump() {
  for (auto& [channel, dial] : dials_) {
    if (dial->connected && !dial->read_ended) {
      loop_.change(dial->fd.get(), (may_read(*dial) ? EPOLLIN : 0u) |
                                       (dial->output_at < dial->output.size() ? EPOLLOUT : 0u));
    }
  }
}

void Dials::handle(Inbox::Message& message) {
  Dial* dial = find(message.channel);
  if (dial == nullptr) return;
  switch (message.type) {
    case Type::kDataToAgent:
      if (dial->write_ended) return;
      dial->output.append(message.payload);
      break;
    case Type::kEndToAgent:
      dial->write_ended = true;
      break;
    case Type::kWindowToAgent:
      if (message.payload.size() < 8) return;
      dial->allowed = std::max(dial->allowed, channel::get_u64(message.payload.data()));
      break;
    case Type::kCancel:
      return remove(message.channel);
    default:
      return;
  }
  if (dial->connected && write_some(*dial)) update(*dial);
}

}  // namespace glovebox::agent
