// SPDX-License-Identifier: Apache-2.0
#include "http/internal/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/log.h"
#include "base/text.h"

namespace glovebox::http::internal {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

tl::unexpected<Error> bad_address(std::string_view text) {
  return fail(
      Code::kInvalidArgument,
      std::string(text) + ": is not an address; use 127.0.0.1:7070, [::1]:7070 or unix:/path",
      {{"field", "listen"}});
}

Result<Address> unix_address(std::string_view path) {
  Address out;
  auto& un = reinterpret_cast<sockaddr_un&>(out.storage);
  if (path.empty() || path[0] != '/' || path.size() >= sizeof un.sun_path) return bad_address(path);
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, path.data(), path.size());
  out.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  out.unix_path = path;
  return out;
}

// True when a socket file is there and something listens on it.
bool is_served(const Address& address) {
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // EAGAIN: its backlog is full, so somebody listens.
  return probe && (::connect(probe.get(), address.get(), address.size) == 0 || errno == EAGAIN);
}

Result<void> clear_stale(const Address& address) {
  struct stat info;
  if (::lstat(address.unix_path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode))
    return fail(Code::kAlreadyExists, address.unix_path + ": exists and is no socket");
  if (is_served(address))
    return fail(Code::kAlreadyExists, address.unix_path + ": another process listens here");
  if (::unlink(address.unix_path.c_str()) != 0) return fail_errno(address.unix_path);
  return {};
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return unix_address(text.substr(kUnixPrefix.size()));
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return bad_address(text);
  const auto port = parse_int(text.substr(colon + 1));
  if (!port || *port < 0 || *port > 65535) return bad_address(text);
  std::string host(text.substr(0, colon));
  if (host == "localhost") host = "127.0.0.1";
  Address out;
  auto& v4 = reinterpret_cast<sockaddr_in&>(out.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(*port));
    out.size = sizeof v4;
    return out;
  }
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return bad_address(text);
  if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1)
    return bad_address(text);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(*port));
  out.size = sizeof v6;
  return out;
}

std::string address_text(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  return "unix";
}

Result<ListenSocket> ListenSocket::open(const Address& address, int unix_mode) {
  const int family = address.get()->sa_family;
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno("socket");
  const std::string name = family == AF_UNIX ? address.unix_path : address_text(address.storage);
  if (family == AF_UNIX) {
    GB_TRYV(clear_stale(address));
    ::fchmod(fd.get(), 0600);  // the file is never there with more rights than it ends up with
  } else {
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (::bind(fd.get(), address.get(), address.size) != 0) {
    if (errno == EADDRINUSE) return fail(Code::kAlreadyExists, name + ": the address is in use");
    return fail_errno("bind " + name);
  }
  ListenSocket socket(std::move(fd), family, address.unix_path);
  if (family == AF_UNIX &&
      ::chmod(address.unix_path.c_str(), static_cast<mode_t>(unix_mode)) != 0) {
    return fail_errno("chmod " + name);
  }
  if (::listen(socket.fd(), 1024) != 0) return fail_errno("listen " + name);
  return socket;
}

ListenSocket::~ListenSocket() {
  if (!fd_ || path_.empty()) return;
  if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    log::warn("http.socket_file_left", {{"path", path_}, {"error", errno_text(errno)}});
  }
}

uint16_t ListenSocket::port() const {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  if (bound.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in&>(bound).sin_port);
  if (bound.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(bound).sin6_port);
  return 0;
}

std::string ListenSocket::text() const {
  if (!path_.empty()) return std::string(kUnixPrefix) + path_;
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(fd(), reinterpret_cast<sockaddr*>(&bound), &size);
  return address_text(bound);
}

}  // namespace glovebox::http::internal
