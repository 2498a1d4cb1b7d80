// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/connections.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <vector>

#include "base/unique_fd.h"

namespace glovebox::agent {
namespace {

constexpr size_t kBuffer = 32 << 10;
constexpr size_t kMostAtOnce = 65536;
constexpr unsigned kAllButListening = ~(1u << TCP_LISTEN);
constexpr timeval kPatience{2, 0};  // the kernel answers within the call

struct Connection {
  uint8_t family = 0;
  inet_diag_sockid id = {};
};

bool ask(int fd, uint16_t type, uint16_t flags, const Connection& which) {
  struct {
    nlmsghdr head;
    inet_diag_req_v2 request;
  } message = {};
  message.head.nlmsg_len = sizeof message;
  message.head.nlmsg_type = type;
  message.head.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  message.request.sdiag_family = which.family;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = kAllButListening;
  message.request.id = which.id;
  return send(fd, &message, sizeof message, 0) == static_cast<ssize_t>(sizeof message);
}

// False when there is no more to come.
bool take(const nlmsghdr* head, size_t size, uint8_t family, std::vector<Connection>* found) {
  for (; NLMSG_OK(head, size); head = NLMSG_NEXT(head, size)) {
    if (head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR ||
        found->size() >= kMostAtOnce)
      return false;
    if (head->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) continue;
    inet_diag_msg about;
    memcpy(&about, NLMSG_DATA(head), sizeof about);
    if (about.idiag_family == family) found->push_back({family, about.id});
  }
  return true;
}

std::vector<Connection> connections(int fd, uint8_t family) {
  std::vector<Connection> found;
  Connection any;
  any.family = family;
  if (!ask(fd, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, any)) return found;
  alignas(nlmsghdr) static char buffer[kBuffer];
  for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
    if (!take(reinterpret_cast<const nlmsghdr*>(buffer), static_cast<size_t>(n), family, &found))
      break;
  }
  return found;
}

// As text; an IPv4 address within IPv6 as the former.
std::string source_of(const Connection& connection) {
  in6_addr six = {};
  memcpy(&six, connection.id.idiag_src, sizeof six);
  const bool is_mapped = connection.family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six);
  const void* address =
      is_mapped ? static_cast<const void*>(&six.s6_addr[12]) : connection.id.idiag_src;
  char text[INET6_ADDRSTRLEN] = {};
  (void)inet_ntop(is_mapped ? AF_INET : connection.family, address, text, sizeof text);
  return text;
}

}  // namespace

void end_connections_of_others(const std::string& own) {
  const UniqueFd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) != 0)
    return;
  for (const uint8_t family : {AF_INET, AF_INET6}) {
    for (const Connection& connection : connections(fd.get(), family)) {
      const std::string source = source_of(connection);
      if (source == own || source.starts_with("127.") || source == "::1" || source == "0.0.0.0" ||
          source == "::")
        continue;
      char answer[256];
      if (ask(fd.get(), SOCK_DESTROY, NLM_F_ACK, connection))
        (void)recv(fd.get(), answer, sizeof answer, 0);
    }
  }
}

}  // namespace glovebox::agent
