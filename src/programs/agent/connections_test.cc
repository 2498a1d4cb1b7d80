// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/connections.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace glovebox::agent {
namespace {

constexpr const char* kOwn = "10.9.9.1";

struct Pair {
  UniqueFd client, server, listener;
};

// In a network namespace of the thread's own, whose loopback has one more address.
bool enter_network() {
  if (::unshare(CLONE_NEWNET) != 0) return false;
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM, 0));
  for (const char* name : {"lo", "lo:1"}) {
    ifreq request = {};
    ::strcpy(request.ifr_name, name);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, name[2] == ':' ? kOwn : "127.0.0.1", &address.sin_addr);
    ::memcpy(&request.ifr_addr, &address, sizeof address);
    if (::ioctl(fd.get(), SIOCSIFADDR, &request) != 0) return false;
    request.ifr_flags = IFF_UP;
    if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return false;
  }
  return true;
}

// `as_six`: the client's socket is an IPv6 one, as many runtimes make them for IPv4.
Pair connect_to(const char* dotted, bool as_six = false) {
  Pair pair;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, dotted, &address.sin_addr);
  socklen_t size = sizeof address;
  pair.listener.reset(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::bind(pair.listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0)
      << strerror(errno);
  EXPECT_EQ(::listen(pair.listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(pair.listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = address.sin_port;
  ::inet_pton(AF_INET6, (std::string("::ffff:") + dotted).c_str(), &six.sin6_addr);
  pair.client.reset(::socket(as_six ? AF_INET6 : AF_INET, SOCK_STREAM, 0));
  const auto* there =
      as_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::connect(pair.client.get(), there, as_six ? sizeof six : sizeof address), 0)
      << strerror(errno);
  pair.server.reset(::accept(pair.listener.get(), nullptr, nullptr));
  return pair;
}

// What a program sees that reads from it, within `patience`: 0 when it goes on.
int error_of(const UniqueFd& fd, int patience_ms = 0) {
  pollfd poller{fd.get(), POLLIN, 0};
  ::poll(&poller, 1, patience_ms);
  char byte;
  const ssize_t n = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
  return n < 0 && errno == EAGAIN ? 0 : n < 0 ? errno : -1;
}

// Whichever end is first tells the other one.
void expect_ended(const Pair& pair) {
  const int client = error_of(pair.client, 20'000), server = error_of(pair.server, 20'000);
  EXPECT_TRUE(client == ECONNABORTED || client == ECONNRESET) << client;
  EXPECT_TRUE(server == ECONNABORTED || server == ECONNRESET) << server;
  EXPECT_TRUE(client == ECONNABORTED || server == ECONNABORTED);
}

template <class Work>
void in_a_network(Work work) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  std::string skip;
  std::thread([&] {
    ASSERT_TRUE(enter_network()) << strerror(errno);
    const Pair probe = connect_to(kOwn);
    end_connections_of_others("10.8.8.8");
    if (error_of(probe.client) == 0 && error_of(probe.server) == 0)
      skip = "this kernel does not end connections for others (CONFIG_INET_DIAG_DESTROY, tcp_diag)";
    if (skip.empty()) work();
  }).join();
  if (!skip.empty()) GTEST_SKIP() << skip;
}

TEST(Connections, ThoseOfAnotherAddressEndAtOnce) {
  in_a_network([] {
    const Pair four = connect_to(kOwn), six = connect_to(kOwn, true);
    end_connections_of_others("10.8.8.8");
    expect_ended(four);
    expect_ended(six);
  });
}

TEST(Connections, OwnOnesAndLoopbackGoOn) {
  in_a_network([] {
    const Pair own = connect_to(kOwn), own_six = connect_to(kOwn, true),
               loopback = connect_to("127.0.0.1"), loopback_six = connect_to("127.0.0.1", true);
    end_connections_of_others(kOwn);
    for (const Pair* pair : {&own, &own_six, &loopback, &loopback_six}) {
      EXPECT_EQ(error_of(pair->client), 0);
      EXPECT_EQ(error_of(pair->server), 0);
    }
  });
}

TEST(Connections, ListenersGoOn) {
  in_a_network([] {
    const Pair pair = connect_to(kOwn);
    end_connections_of_others("");
    expect_ended(pair);
    int listens = 0;
    socklen_t size = sizeof listens;
    EXPECT_EQ(::getsockopt(pair.listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size), 0);
    EXPECT_EQ(listens, 1);
  });
}

TEST(Connections, ManyAreNoMatter) {
  in_a_network([] {
    std::vector<Pair> pairs;
    for (int i = 0; i < 300; ++i) pairs.push_back(connect_to(kOwn));
    end_connections_of_others("10.8.8.8");
    for (const Pair& pair : pairs) expect_ended(pair);
  });
}

}  // namespace
}  // namespace glovebox::agent
