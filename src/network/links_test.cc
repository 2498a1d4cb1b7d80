// SPDX-License-Identifier: Apache-2.0
#include "network/links.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "network/router.h"
#include "policy/address.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/netns.h"

namespace glovebox::network {
namespace {

using namespace std::chrono_literals;

sockaddr_in socket_address(uint32_t host, uint16_t port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(host);
  a.sin_port = htons(port);
  return a;
}

// A router with its packet filter in a directory of its own. Its own host namespace is never touched.
class LinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (sys::find_program("nft").empty()) GTEST_SKIP() << "needs nftables";
    char name[] = "/tmp/glovebox-links-XXXXXX";
    directory_ = ::mkdtemp(name);
    auto router = Router::open(directory_, GLOVEBOX_NETWORK_TEST_PROGRAM);
    ASSERT_TRUE(router) << router.error().message;
    router_.emplace(std::move(*router));
    auto links = Links::open(router_->netns());
    ASSERT_TRUE(links) << links.error().message;
    links_ = std::move(*links);
  }
  void TearDown() override {
    if (router_) router_->leave();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }

  Link take() {
    auto link = links_->take();
    EXPECT_TRUE(link) << link.error().message;
    return link ? std::move(*link) : Link{};
  }
  std::string run_inside(int netns, std::vector<std::string> words) {
    std::string out;
    auto done = sys::in_netns(netns, [&]() -> Result<void> {
      GB_TRY(out, sys::run_command(words, 60s));
      return {};
    });
    return done ? out : done.error().message;
  }
  UniqueFd socket_in(int netns, int type) {
    UniqueFd fd;
    EXPECT_TRUE(sys::in_netns(netns, [&]() -> Result<void> {
      fd = UniqueFd(::socket(AF_INET, type | SOCK_CLOEXEC, 0));
      return {};
    }));
    return fd;
  }
  UniqueFd listen_in_router(uint16_t port) {
    UniqueFd fd = socket_in(router_->netns(), SOCK_STREAM);
    const auto address = socket_address(0, port);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd.get(), 16), 0);
    return fd;
  }
  static constexpr int kPatienceMs = 60'000, kQuietMs = 500;  // for what is to come, for what is not to come
  // 0, or the errno of connect(); ETIMEDOUT when nothing is decided by then.
  int connect_from(int netns, uint32_t host, uint16_t port, int patience_ms = kPatienceMs) {
    UniqueFd fd = socket_in(netns, SOCK_STREAM | SOCK_NONBLOCK);
    const auto address = socket_address(host, port);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    pollfd wanted{fd.get(), POLLOUT, 0};
    if (::poll(&wanted, 1, patience_ms) == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  }

  std::string directory_;
  std::optional<Router> router_;
  std::unique_ptr<Links> links_;
};

constexpr uint32_t kElsewhere = 0x2D420042;  // 45.66.0.66

TEST_F(LinksTest, EveryConnectionArrivesAtTheProxyPortAndKeepsItsSource) {
  const UniqueFd proxy = listen_in_router(kTcpPort);
  for (int i = 0; i < 3; ++i) {
    const Link link = take();
    ASSERT_EQ(connect_from(link.netns.get(), kElsewhere, 8443), 0);
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    const UniqueFd accepted(::accept4(proxy.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC));
    ASSERT_TRUE(accepted);
    EXPECT_EQ(ntohl(peer.sin_addr.s_addr), sandbox_address(link.number));
  }
}

TEST_F(LinksTest, WithoutAProxyConnectionsAreRefused) {
  const Link link = take();
  EXPECT_EQ(connect_from(link.netns.get(), kElsewhere, 443), ECONNREFUSED);
  EXPECT_EQ(connect_from(link.netns.get(), router_address(link.number), 22), ECONNREFUSED);
}

TEST_F(LinksTest, LinksDoNotReachEachOther) {
  const Link one = take(), other = take();
  const UniqueFd server = socket_in(other.netns.get(), SOCK_STREAM);
  const auto any = socket_address(0, 9000);
  ASSERT_EQ(::bind(server.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  ASSERT_EQ(::listen(server.get(), 1), 0);
  EXPECT_EQ(connect_from(other.netns.get(), sandbox_address(other.number), 9000), 0) << "the server itself works";
  EXPECT_NE(connect_from(one.netns.get(), sandbox_address(other.number), 9000, kQuietMs), 0);
  const UniqueFd udp = socket_in(other.netns.get(), SOCK_DGRAM), sender = socket_in(one.netns.get(), SOCK_DGRAM);
  ASSERT_EQ(::bind(udp.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  const auto target = socket_address(sandbox_address(other.number), 9000);
  ::sendto(sender.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&target), sizeof target);
  pollfd wanted{udp.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wanted, 1, 200), 0);
}

TEST_F(LinksTest, ASourceOfAnotherLinkIsDropped) {
  const UniqueFd proxy = listen_in_router(kTcpPort);
  const Link one = take(), other = take();
  run_inside(one.netns.get(), {"ip", "address", "add", policy::address_v4(sandbox_address(other.number)).text() + "/32", "dev", "lo"});
  UniqueFd fd = socket_in(one.netns.get(), SOCK_STREAM | SOCK_NONBLOCK);
  const auto stolen = socket_address(sandbox_address(other.number), 0);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&stolen), sizeof stolen), 0);
  const auto target = socket_address(kElsewhere, 443);
  (void)::connect(fd.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target);
  pollfd wanted{proxy.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&wanted, 1, 300), 0);
}

TEST_F(LinksTest, TheSandboxSideHasNoIpv6AndOneWayOut) {
  const Link link = take();
  EXPECT_EQ(run_inside(link.netns.get(), {"ip", "-6", "address"}), "");
  const std::string routes = run_inside(link.netns.get(), {"ip", "route"});
  EXPECT_NE(routes.find("default via " + policy::address_v4(router_address(link.number)).text() + " dev eth0"), routes.npos) << routes;
}

TEST_F(LinksTest, AChangedFilterIsNoticedAndRepaired) {
  ASSERT_TRUE(router_->check_filter());
  auto events = router_->watch_filter();
  ASSERT_TRUE(events);
  run_inside(router_->netns(), {"nft", "flush", "ruleset"});
  EXPECT_TRUE(sys::wait_readable(events->get(), 60s));
  EXPECT_FALSE(router_->check_filter());
  const UniqueFd proxy = listen_in_router(kTcpPort);
  const Link link = take();
  EXPECT_NE(connect_from(link.netns.get(), kElsewhere, 443, kQuietMs), 0) << "without the filter nothing passes";
  ASSERT_TRUE(router_->load_filter());
  EXPECT_TRUE(router_->check_filter());
  EXPECT_EQ(connect_from(link.netns.get(), kElsewhere, 443), 0);
  run_inside(router_->netns(), {"nft", "insert", "rule", "inet", "glovebox", "guard", "accept"});
  EXPECT_FALSE(router_->check_filter());
}

TEST_F(LinksTest, ALinkVanishesWithItsNamespace) {
  Link link = take();
  const std::string name = link_name(link.number);
  EXPECT_NE(run_inside(router_->netns(), {"ip", "link", "show", "dev", name}).find(name), std::string::npos);
  link.netns.reset();
  std::string shown;
  for (int i = 0; i < 3000; ++i) {
    shown = run_inside(router_->netns(), {"ip", "-o", "link"});
    if (shown.find(name) == std::string::npos) break;
    ::usleep(10'000);
  }
  EXPECT_EQ(shown.find(name), std::string::npos) << shown;
}

TEST_F(LinksTest, ThePoolGivesReadyLinksAndNumbersAreNotShared) {
  auto made = links_->prepare(3);
  ASSERT_TRUE(made);
  EXPECT_EQ(*made, 3u);
  std::set<uint32_t> numbers;
  std::vector<Link> held;
  for (int i = 0; i < 5; ++i) {
    held.push_back(take());
    numbers.insert(held.back().number);
  }
  EXPECT_EQ(numbers.size(), 5u);
  EXPECT_EQ(links_->taken(), 5u);
  for (const Link& link : held) links_->release(link.number);
  EXPECT_EQ(links_->taken(), 0u);
}

TEST_F(LinksTest, AnotherDaemonTakesTheRouterOver) {
  const UniqueFd proxy = listen_in_router(kTcpPort);
  const Link link = take();
  auto second = Router::open(directory_, GLOVEBOX_NETWORK_TEST_PROGRAM);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->was_adopted());
  EXPECT_EQ(second->keeper(), router_->keeper());
  EXPECT_EQ(connect_from(link.netns.get(), kElsewhere, 443), 0);
  // An unrecorded keeper of this directory is ended, and a lost one replaced.
  std::filesystem::remove(directory_ + "/router.json");
  auto third = Router::open(directory_, GLOVEBOX_NETWORK_TEST_PROGRAM);
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->was_adopted());
  EXPECT_NE(third->keeper(), router_->keeper());
  for (int i = 0; i < 3000 && sys::is_alive(router_->keeper()); ++i) ::usleep(10'000);
  EXPECT_FALSE(sys::is_alive(router_->keeper()));
  auto kept = router_->ensure_keeper();
  ASSERT_TRUE(kept);
  EXPECT_TRUE(*kept);
  end_left_routers(directory_);
  for (int i = 0; i < 3000 && sys::is_alive(third->keeper()); ++i) ::usleep(10'000);
  EXPECT_FALSE(sys::is_alive(third->keeper()));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/router.json"));
  third->leave();
}

}  // namespace
}  // namespace glovebox::network
