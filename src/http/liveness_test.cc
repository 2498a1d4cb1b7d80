// SPDX-License-Identifier: Apache-2.0
// Clients that are slow, silent, gone or too many; and the server's end.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <vector>

#include "http/test_server.h"

namespace glovebox::http {
namespace {

using namespace std::chrono_literals;
using testing::body_of;
using testing::eventually;
using testing::get;
using testing::post;
using testing::Raw;
using testing::status_of;
using testing::TestServer;

Awaitable<void> ok(Exchange& exchange) {
  co_await exchange.response.send(200, {}, "ok");
}

TEST(Timeout, AHeadHasAFixedTimeHoweverManyBytesTrickleIn) {
  ServerConfig config = TestServer::quick();
  config.header_timeout = 500ms;
  TestServer server(ok, config);
  const Deadline start = Clock::now();
  Raw raw(server.port());
  raw.send("GET / HTTP/1.1\r\nHost: x\r\n");
  std::atomic<bool> done{false};
  std::thread trickle([&] {
    while (!done && raw.send("A: b\r\n")) std::this_thread::sleep_for(20ms);
  });
  const std::string response = raw.read_all();
  const auto took = Clock::now() - start;
  done = true;
  trickle.join();
  EXPECT_EQ(status_of(response), 408);
  EXPECT_NE(response.find("\"code\":\"timeout\""), response.npos);
  EXPECT_GE(took, 500ms);
  EXPECT_LT(took, 30s);  // bytes trickle in for as long as it lets them
}

TEST(Timeout, SilentConnectionsAreClosedWithoutAWord) {
  ServerConfig config = TestServer::quick();
  config.header_timeout = 50ms;
  TestServer impatient(ok, config);
  Raw fresh(impatient.port());
  EXPECT_EQ(fresh.read_all(), "");
  EXPECT_TRUE(eventually([&] { return impatient.connections() == 0; }));
  config = TestServer::quick();
  config.keep_alive_timeout = 100ms;
  TestServer server(ok, config);
  Raw used(server.port());
  used.send(get("/"));
  EXPECT_EQ(status_of(used.read_response()), 200);
  EXPECT_EQ(used.read_all(), "");
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(Timeout, KeepAliveOutlastsTheHeaderTimeout) {
  ServerConfig config = TestServer::quick();
  int status = 0;
  // Where the machine stands still for longer than the first time, the head of a request does not come in it.
  for (const auto time : {50ms, 2000ms, 10'000ms}) {
    config.header_timeout = time;
    TestServer server(ok, config);
    Raw raw(server.port());
    raw.send(get("/"));
    if (status_of(raw.read_response()) != 200) continue;
    std::this_thread::sleep_for(3 * time);
    raw.send(get("/"));
    status = status_of(raw.read_response());
    if (status == 200) break;
  }
  EXPECT_EQ(status, 200);
}

TEST(Timeout, ABodyThatStopsIsReportedToTheHandler) {
  ServerConfig config = TestServer::quick();
  config.body_idle_timeout = 50ms;
  std::atomic<int> code{-1};
  TestServer server(
      [&](Exchange& exchange) -> Awaitable<void> {
        auto body = co_await exchange.body.read_all(1000);
        code = body ? -2 : static_cast<int>(body.error().code);
        if (!body) co_await exchange.response.send_error(body.error(), {}, 408);
      },
      config);
  Raw raw(server.port());
  raw.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(status_of(raw.read_all()), 408);
  EXPECT_EQ(code, static_cast<int>(Code::kTimeout));
}

// Streams until it fails; notes how.
struct Pump {
  std::atomic<size_t> sent{0};
  std::atomic<int> code{-1};
  Handler handler() {
    return [this](Exchange& exchange) { return run(exchange); };
  }
  Awaitable<void> run(Exchange& exchange) {
    const std::string piece(64 << 10, 'x');
    co_await exchange.response.begin(200, {});
    for (;;) {
      auto written = co_await exchange.response.write(piece);
      if (!written) {
        code = static_cast<int>(written.error().code);
        co_return;
      }
      sent += piece.size();
    }
  }
};

TEST(SlowReader, SuspendsTheWriterAndIsDroppedWhenItTakesNothing) {
  ServerConfig config = TestServer::quick();
  config.write_idle_timeout = 300ms;
  Pump pump;
  TestServer server(pump.handler(), config);
  Raw raw(server.port(), 64 << 10);
  raw.send(get("/"));
  EXPECT_TRUE(eventually([&] { return pump.code == static_cast<int>(Code::kTimeout); }));
  EXPECT_LT(pump.sent, 16u << 20);  // the kernel's buffers, no more
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

TEST(SlowReader, DoesNotHoldUpOthersNorDoesAFastOne) {
  Pump pump;
  TestServer server([&](Exchange& exchange) {
    return exchange.request.path == "/" ? ok(exchange) : pump.run(exchange);
  });
  Raw slow(server.port()), fast(server.port());
  slow.send(get("/pump"));
  fast.send(get("/pump"));
  std::atomic<bool> done{false};
  std::thread reader([&] {
    while (!done) fast.read_bytes(1 << 20);
    fast.close();
  });
  Raw raw(server.port());
  for (int i = 0; i < 100; ++i) {
    raw.send(get("/"));
    ASSERT_EQ(status_of(raw.read_response()), 200);
  }
  done = true;
  reader.join();
}

// Waits for its client to leave.
struct Waiter {
  std::atomic<int> started{0}, gone{0}, called{0}, returned{0};
  Handler handler() {
    return [this](Exchange& exchange) { return run(exchange); };
  }
  Awaitable<void> run(Exchange& exchange) {
    if (exchange.request.path == "/ok") co_return co_await ok(exchange);
    exchange.on_client_gone([this] { ++called; });
    ++started;
    const bool is_gone = co_await exchange.wait_client_gone(after(200s));
    if (is_gone && exchange.client_gone()) ++gone;
    ++returned;
  }
};

TEST(ClientGone, IsSeenWhileAHandlerWaits) {
  Waiter waiter;
  TestServer server(waiter.handler());
  Raw closes(server.port()), pipelines(server.port()), stays(server.port());
  closes.send(get("/"));
  pipelines.send(get("/") + get("/"));  // unread bytes must not hide the end
  stays.send(get("/"));
  ASSERT_TRUE(eventually([&] { return waiter.started == 3; }));
  EXPECT_EQ(waiter.gone, 0);
  closes.close();
  pipelines.close();
  EXPECT_TRUE(eventually([&] { return waiter.returned == 2; }));
  EXPECT_EQ(waiter.gone, 2);
  EXPECT_EQ(waiter.called, 2);
}

TEST(ClientGone, MidBodyIsAnErrorOfTheRead) {
  std::atomic<int> code{-1};
  TestServer server([&](Exchange& exchange) -> Awaitable<void> {
    auto body = co_await exchange.body.read_all(1000);
    code = body ? -2 : static_cast<int>(body.error().code);
  });
  Raw raw(server.port());
  raw.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
  raw.close();
  EXPECT_TRUE(eventually([&] { return code == static_cast<int>(Code::kCancelled); }));
}

TEST(ClientGone, MidResponseIsAnErrorOfTheWrite) {
  Pump pump;
  TestServer server(pump.handler());
  Raw raw(server.port());
  raw.send(get("/"));
  raw.read_bytes(1000);
  raw.close();
  EXPECT_TRUE(eventually([&] { return pump.code == static_cast<int>(Code::kCancelled); }));
}

TEST(Connections, AnIdleOneMakesRoomAndElseTheNewOneIsTurnedAway) {
  ServerConfig config = TestServer::quick();
  config.max_connections = 2;
  Waiter waiter;
  TestServer server(waiter.handler(), config);
  Raw idle(server.port());
  idle.send(get("/ok"));
  idle.read_response();
  Raw busy(server.port());
  busy.send(get("/"));
  ASSERT_TRUE(eventually([&] { return waiter.started == 1; }));
  Raw third(server.port());
  third.send(get("/"));
  EXPECT_TRUE(idle.is_closed());
  ASSERT_TRUE(eventually([&] { return waiter.started == 2; }));
  Raw fourth(server.port());
  const std::string refused = fourth.read_all();
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_NE(refused.find("Retry-After: "), refused.npos);
  EXPECT_NE(refused.find("\"code\":\"capacity\""), refused.npos);
}

TEST(Connections, AcceptRecoversWhenDescriptorsRunOut) {
  TestServer server(ok);
  Raw before(server.port());
  before.send(get("/"));
  ASSERT_EQ(status_of(before.read_response()), 200);
  Raw waiting(server.port()), spare(server.port());
  ASSERT_TRUE(eventually([&] { return server.connections() == 3; }));
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = ::dup(0);
  ::close(next);
  // One more descriptor fits: the client's. The server's own for it does not.
  const rlimit tight{static_cast<rlim_t>(next) + 1, old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  Raw starved(server.port());
  starved.send(get("/"));
  before.send(get("/"));  // those that are there are served
  EXPECT_EQ(status_of(before.read_response()), 200);
  std::this_thread::sleep_for(50ms);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(status_of(starved.read_response()), 200);
}

TEST(Stop, LetsRequestsFinishAndClosesIdleConnections) {
  std::atomic<bool> started{false}, release{false};
  TestServer server([&](Exchange& exchange) -> Awaitable<void> {
    if (exchange.request.path == "/slow") {
      started = true;
      while (!release) co_await sleep_for(2ms);
    }
    co_await ok(exchange);
  });
  Raw idle(server.port()), busy(server.port());
  idle.send(get("/"));
  idle.read_response();
  busy.send(get("/slow"));
  ASSERT_TRUE(eventually([&] { return started.load(); }));
  std::thread stopper(
      [&] { server.run([](Server& s) -> Awaitable<void> { co_await s.stop(after(60s)); }); });
  EXPECT_TRUE(idle.is_closed());
  release = true;
  const std::string response = busy.read_all();
  EXPECT_EQ(body_of(response), "ok");
  EXPECT_NE(response.find("Connection: close"), response.npos);
  stopper.join();
  EXPECT_EQ(server.connections(), 0u);
}

TEST(Stop, CutsWhatIsLeftAtTheDeadline) {
  Waiter waiter;
  TestServer server(waiter.handler());
  Raw raw(server.port());
  raw.send(get("/"));
  ASSERT_TRUE(eventually([&] { return waiter.started == 1; }));
  server.run([](Server& s) -> Awaitable<void> { co_await s.stop(after(20ms)); });
  EXPECT_EQ(waiter.gone, 1);
  EXPECT_TRUE(raw.is_closed());
}

TEST(Listen, RefusesBadAndTakenAddresses) {
  boost::asio::io_context loop;
  const auto code = [&](std::string address) {
    ServerConfig config;
    config.listen = std::move(address);
    auto server = Server::listen(loop.get_executor(), config, ok);
    return server ? std::string("ok") : std::string(info(server.error().code).name);
  };
  for (const char* bad : {"", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                          "::1:80", "[::1:80", "host.example:80", "unix:", "unix:relative"}) {
    EXPECT_EQ(code(bad), "invalid_argument") << bad;
  }
  TestServer server(ok);
  EXPECT_EQ(code("127.0.0.1:" + std::to_string(server.port())), "already_exists");
}

TEST(Listen, UnixSocketIsPrivateReplacedWhenStaleAndRemoved) {
  const std::string path = ::testing::TempDir() + "glovebox-http-" + std::to_string(::getpid());
  ServerConfig config = TestServer::quick();
  config.listen = "unix:" + path;
  {
    TestServer server(ok, config);
    struct stat info;
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    boost::asio::io_context loop;
    auto second = Server::listen(loop.get_executor(), config, ok);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  const UniqueFd stale(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  TestServer again(ok, config);  // asserts that it could listen
}

}  // namespace
}  // namespace glovebox::http
