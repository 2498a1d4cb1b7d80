// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::http::internal {

// A socket address, parsed from "127.0.0.1:80", "[::1]:80", "localhost:80" or "unix:/path". Names
// are not resolved.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string unix_path;  // empty for TCP
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
Result<Address> parse_address(std::string_view text);
std::string address_text(const sockaddr_storage& address);  // "127.0.0.1:80", "unix"

// A bound, listening, non-blocking socket; removes the file of a Unix socket at its end.
class ListenSocket {
 public:
  // A Unix socket file that nobody listens on any more is replaced.
  static Result<ListenSocket> open(const Address& address, int unix_mode);
  ListenSocket(ListenSocket&&) = default;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  int fd() const { return fd_.get(); }
  int family() const { return family_; }
  uint16_t port() const;
  std::string text() const;

 private:
  ListenSocket(UniqueFd fd, int family, std::string path)
      : fd_(std::move(fd)), family_(family), path_(std::move(path)) {}
  UniqueFd fd_;
  int family_;
  std::string path_;
};

}  // namespace glovebox::http::internal
