// SPDX-License-Identifier: Apache-2.0
// Policies that change while proxies come up, and links that go meanwhile.
#include "network/network.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/text.h"
#include "network/router.h"
#include "sys/command.h"
#include "sys/files.h"

namespace glovebox::network {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

policy::NetworkPolicy named(const std::string& host) {
  return policy::parse_network_policy({{"allow", boost::json::array{{{"host", host}}}}}).value();
}

// A call that goes on beside the test.
struct Call {
  std::optional<Result<void>> done;
};

// Proxies that write down what they are told (testing/test_program.cc), and answer when they are
// let.
const policy::NetworkPolicy kOld = named("old.example"), kNew = named("new.example");
const std::string kOne = "sb-one", kTwo = "sb-two", kGone = "sb-gone";  // calls that go on refer to them

class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (sys::find_program("nft").empty()) GTEST_SKIP() << "needs nftables";
    char name[] = "/tmp/glovebox-network-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  void TearDown() override {
    if (directory_.empty()) return;
    end_left_routers(directory_);
    fs::remove_all(directory_);
  }

  void with_network(std::function<Awaitable<void>(Network&)> work) {
    boost::asio::io_context loop;
    executor_ = loop.get_executor();
    BlockingPool pool(4);
    Config config;
    config.directory = directory_;
    config.program = GLOVEBOX_NETWORK_TEST_PROGRAM;
    config.ready_links = 0;
    const auto network = Network::create(std::move(config), executor_, &pool);
    const auto task = [&]() -> Awaitable<void> {
      co_await work(*network);
      hold("egress", false);
      hold("registry", false);
      co_await network->stop();
      loop.stop();  // its watchers sleep
    };
    spawn(executor_, "test", task());
    loop.run_for(30s);
    EXPECT_TRUE(loop.stopped());
  }

  std::shared_ptr<Call> begin(Async<void> task) {
    auto call = std::make_shared<Call>();
    spawn(executor_, "call", [](std::shared_ptr<Call> into, Async<void> what) -> Awaitable<void> {
      into->done = co_await std::move(what);
    }(call, std::move(task)));
    return call;
  }
  void hold(const std::string& proxy, bool holds) {
    const std::string path = directory_ + "/run/" + proxy + ".hold";
    if (holds) std::ofstream(path) << "";
    if (!holds) fs::remove(path);
  }
  // What the proxy was told that has all of these in it.
  std::vector<std::string> told(const std::string& proxy, std::vector<std::string> words) const {
    auto lines = split(sys::read_file(directory_ + "/run/" + proxy + ".log").value_or(""), '\n');
    std::erase_if(lines, [&](const std::string& line) {
      return std::any_of(words.begin(), words.end(),
                         [&](const auto& word) { return line.find(word) == line.npos; });
    });
    return lines;
  }
  Awaitable<bool> eventually(std::function<bool()> is_true) {
    const Deadline deadline = after(10s);
    while (!is_true() && Clock::now() < deadline) co_await sleep_for(2ms);
    co_return is_true();
  }

  std::string directory_;
  Executor executor_;
};

TEST_F(NetworkTest, APolicyThatChangesWhileAProxyIsSetUpIsTheOneThatHolds) {
  with_network([this](Network& network) -> Awaitable<void> {
    const auto one = co_await network.acquire(), two = co_await network.acquire();
    EXPECT_TRUE(one && two);
    if (!one || !two) co_return;
    EXPECT_TRUE(co_await network.set_policy(one->number, kOne, kOld));
    EXPECT_TRUE(co_await network.set_policy(two->number, kTwo, kOld));
    EXPECT_TRUE(co_await eventually([&] { return told("registry", {"config"}).size() == 1; }));
    hold("egress", true);
    const auto running = told("egress", {"pid "});
    EXPECT_EQ(running.size(), 1u);
    ::kill(static_cast<pid_t>(std::stoi(running.at(0).substr(4))), SIGKILL);
    EXPECT_TRUE(co_await eventually([&] { return told("egress", {"sb-one"}).size() == 2; }))
        << "the next one is told";
    const auto changed = begin(network.set_policy(two->number, kTwo, kNew));
    EXPECT_TRUE(
        co_await eventually([&] { return told("egress", {"sb-two", "new.example"}).size() == 1; }));
    hold("egress", false);
    EXPECT_TRUE(co_await eventually([&] { return changed->done.has_value(); }));
    EXPECT_TRUE(co_await eventually([&] { return told("egress", {"sb-two"}).size() == 3; }));
    EXPECT_NE(told("egress", {"sb-two"}).back().find("new.example"), std::string::npos);
    network.release(one->number);
    network.release(two->number);
  });
}

TEST_F(NetworkTest, APolicyIsNotSetForALinkThatWasGivenBackMeanwhile) {
  with_network([this](Network& network) -> Awaitable<void> {
    const auto link = co_await network.acquire();
    EXPECT_TRUE(link);
    if (!link) co_return;
    EXPECT_TRUE(co_await network.probe());  // both proxies are up
    hold("registry", true);
    const auto call = begin(network.set_policy(link->number, kGone, kNew));
    EXPECT_TRUE(co_await eventually([&] { return told("registry", {"sb-gone"}).size() == 1; }));
    network.release(link->number);
    hold("registry", false);
    EXPECT_TRUE(co_await eventually([&] { return call->done.has_value(); }));
    if (call->done) EXPECT_FALSE(*call->done);
    EXPECT_TRUE(told("egress", {"sb-gone"}).empty());
    EXPECT_EQ(network.status().links, 0u);
  });
}

}  // namespace
}  // namespace glovebox::network
