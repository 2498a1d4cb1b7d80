// SPDX-License-Identifier: Apache-2.0
#include "http/client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include "http/test_server.h"

namespace glovebox::http {
namespace {

using namespace std::chrono_literals;
using testing::run_alone;
using testing::TestServer;

Url local(uint16_t port) {
  Url url;
  url.host = "127.0.0.1";
  url.port = port;
  return url;
}

TEST(ParseUrl, TakesHttpAndUnixOnly) {
  const Url url = parse_url("http://[::1]:8080/a?b").value();
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 8080);
  EXPECT_EQ(url.target, "/a?b");
  EXPECT_EQ(url.host_header(), "[::1]:8080");
  EXPECT_EQ(parse_url("http://a").value().host_header(), "a");
  EXPECT_EQ(parse_url("ws://a?x").value().target, "/?x");
  EXPECT_EQ(parse_url("unix:/run/x").value().unix_path, "/run/x");
  EXPECT_EQ(parse_url("https://a").error().code, Code::kUnsupported);
  for (const char* bad :
       {"", "a", "http://", "http://:80", "http://a:0", "http://a:x", "http://a:", "ftp://a",
        "http://[::1", "http://u@a", "http://a b", "http://a/#x", "unix:x"}) {
    EXPECT_FALSE(parse_url(bad)) << bad;
  }
}

// Echoes the body back piece by piece, in chunks.
Awaitable<void> echo(Exchange& exchange) {
  Headers headers{{"X-Method", exchange.request.method}};
  if (exchange.request.method == "HEAD")
    co_return (void) co_await exchange.response.send(200, std::move(headers), "body");
  co_await exchange.response.begin(200, std::move(headers));
  for (;;) {
    auto part = co_await exchange.body.read_some();
    if (!part) co_return;
    if (part->empty()) break;
    if (!co_await exchange.response.write(*part)) co_return;
  }
  co_await exchange.response.end();
}

TEST(Client, CallsReuseOneConnection) {
  TestServer server(echo);
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(local(server.port()))).value();
    for (int i = 0; i < 3; ++i) {
      auto response = co_await connection->request("POST", "/", {}, "body " + std::to_string(i));
      EXPECT_EQ(response.value().body, "body " + std::to_string(i));
      EXPECT_EQ(response->head.header("x-method"), "POST");
      auto head = co_await connection->request("HEAD", "/");
      EXPECT_EQ(head.value().head.content_length, 4u);
      EXPECT_EQ(head->body, "");
      EXPECT_TRUE(connection->reusable());
    }
    EXPECT_EQ(server.connections(), 1u);
  });
}

TEST(Client, StreamsBothWaysAtOnce) {
  TestServer server(echo);
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(local(server.port()))).value();
    EXPECT_TRUE(co_await connection->start("PUT", "/x", {}, Connection::kChunked));
    std::string sent;
    for (int i = 0; i < 20; ++i) {
      const std::string piece(static_cast<size_t>(i) * 1000 + 1, static_cast<char>('a' + i));
      EXPECT_TRUE(co_await connection->write(piece));
      sent += piece;
    }
    auto head = co_await connection->finish();
    EXPECT_EQ(head.value().status, 200);
    std::string got;
    for (;;) {
      auto part = co_await connection->read_some(777);
      if (!part || part->empty()) break;
      EXPECT_LE(part->size(), 777u);
      got += *part;
    }
    EXPECT_TRUE(got == sent);
    EXPECT_TRUE(connection->reusable());
  });
}

TEST(Client, RefusesToWriteWhatCouldSplitARequest) {
  TestServer server(echo);
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(local(server.port()))).value();
    Headers bad{{"X", "a\r\nY: b"}};
    EXPECT_EQ((co_await connection->request("GET", "/", bad)).error().code, Code::kInvalidArgument);
    EXPECT_EQ((co_await connection->request("GET", "/a b")).error().code, Code::kInvalidArgument);
    EXPECT_EQ((co_await connection->request("GET", "/\r\nX: y")).error().code,
              Code::kInvalidArgument);
    EXPECT_EQ((co_await connection->request("GET", "/")).value().head.status, 200);
  });
}

enum class Then { kCloses, kHolds };

// A server that answers one connection with fixed bytes after it has read some, and then closes it, or holds it for as long as it lives.
class Scripted {
 public:
  explicit Scripted(std::string answer, Then then = Then::kCloses)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    GB_ASSERT(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    GB_ASSERT(::listen(fd_.get(), 8) == 0);
    GB_ASSERT(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this, answer, then] {
      const UniqueFd peer(::accept(fd_.get(), nullptr, nullptr));
      char buffer[4096];
      if (::recv(peer.get(), buffer, sizeof buffer, 0) <= 0) return;
      ::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      if (then == Then::kHolds) over_.get_future().wait();
    });
  }
  ~Scripted() {
    over_.set_value();
    thread_.join();
  }
  uint16_t port = 0;

 private:
  UniqueFd fd_;
  std::promise<void> over_;
  std::thread thread_;
};

struct Outcome {
  int status = 0;  // 0: an error
  std::string text;
};

Outcome call(const std::string& answer, ClientOptions options = {},
             Then then = Then::kCloses, size_t limit = 1000) {
  Scripted server(answer, then);
  Outcome out;
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(local(server.port), options)).value();
    auto response = co_await connection->request("GET", "/", {}, "", limit);
    out = response ? Outcome{response->head.status, response->body}
                   : Outcome{0, std::string(info(response.error().code).name)};
  });
  return out;
}

TEST(Client, TellsAWholeResponseFromABrokenOne) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::pair<std::string, Outcome> cases[] = {
      {ok + "Content-Length: 3\r\n\r\nabc", {200, "abc"}},
      {ok + "\r\nuntil close", {200, "until close"}},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + ok +
           "Content-Length: 1\r\n\r\na",
       {200, "a"}},
      {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", {200, "ab"}},
      {"HTTP/1.1 204 No Content\r\n\r\n", {204, ""}},
      {ok + "Content-Length: 4\r\n\r\nabc", {0, "corrupt"}},
      {ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", {0, "corrupt"}},
      {ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", {0, "corrupt"}},
      {ok + "Transfer-Encoding: gzip\r\n\r\nab", {0, "corrupt"}},
      {ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", {0, "corrupt"}},
      {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", {0, "corrupt"}},
      {"SSH-2.0-OpenSSH\r\n", {0, "unavailable"}},
      {ok + "Content-Length: 1001\r\n\r\n" + std::string(1001, 'x'), {0, "payload_too_large"}},
      {ok + "A: " + std::string(70'000, 'x') + "\r\n\r\n", {0, "corrupt"}},
      {"", {0, "unavailable"}}};
  for (const auto& [answer, expected] : cases) {
    const Outcome out = call(answer);
    EXPECT_EQ(out.status, expected.status) << answer.substr(0, 100);
    EXPECT_EQ(out.text, expected.text) << answer.substr(0, 100);
  }
}

TEST(Client, GivesUpOnASilentServer) {
  ClientOptions options;
  options.idle_timeout = 50ms;
  EXPECT_EQ(call("", options, Then::kHolds).text, "timeout");
  EXPECT_EQ(call("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na", options, Then::kHolds).text, "timeout");
}

TEST(Client, ReportsAnUnreachableServer) {
  // Bound by nobody else meanwhile, and nobody listens.
  const UniqueFd held(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(held.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(held.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  const std::string no_name = std::string(64, 'n') + ".invalid";  // too long for one: no name server is asked
  run_alone([&]() -> Awaitable<void> {
    EXPECT_EQ((co_await Connection::connect(local(port))).error().code, Code::kUnavailable);
    EXPECT_EQ((co_await Connection::connect(parse_url("unix:/nonexistent").value())).error().code,
              Code::kUnavailable);
    EXPECT_EQ((co_await Connection::connect(parse_url("http://" + no_name).value()))
                  .error()
                  .code,
              Code::kUnavailable);
  });
}

TEST(Client, ReadsTheAnswerOfAServerThatRefusesTheBody) {
  TestServer server([](Exchange& exchange) -> Awaitable<void> {
    auto body = co_await exchange.body.read_all(1000);
    co_await exchange.response.send_error(body.error());
  });
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(local(server.port()))).value();
    auto response = co_await connection->request("POST", "/", {}, std::string(8 << 20, 'x'));
    EXPECT_EQ(response.value().head.status, 413);
    EXPECT_FALSE(connection->reusable());
  });
}

TEST(Client, WorksOverAUnixSocket) {
  ServerConfig config = TestServer::quick();
  config.listen = "unix:" + ::testing::TempDir() + "glovebox-client-" + std::to_string(::getpid());
  TestServer server(
      [](Exchange& exchange) -> Awaitable<void> {
        std::string peer = exchange.request.peer;
        co_await exchange.response.send(200, {}, std::move(peer));
      },
      config);
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(parse_url(config.listen).value())).value();
    EXPECT_EQ((co_await connection->request("GET", "/")).value().body, "unix");
  });
}

TEST(Client, TakesTheStreamAfterASwitch) {
  TestServer server([](Exchange& exchange) -> Awaitable<void> {
    Headers headers{{"Connection", "Upgrade"}, {"Upgrade", "raw"}};
    auto stream = (co_await exchange.switch_protocol(101, std::move(headers))).value();
    char data[64];
    for (;;) {
      auto n = co_await stream->read_some(data, sizeof data);
      if (!n || *n == 0) co_return;
      if (!co_await stream->write(std::string_view(data, *n))) co_return;
    }
  });
  run_alone([&]() -> Awaitable<void> {
    auto connection = (co_await Connection::connect(local(server.port()))).value();
    Headers headers{{"Connection", "Upgrade"}, {"Upgrade", "raw"}};
    EXPECT_TRUE(co_await connection->start("GET", "/", headers, Connection::kNoBody));
    EXPECT_EQ((co_await connection->finish()).value().status, 101);
    auto stream = connection->take_stream();
    EXPECT_TRUE(co_await stream->write("ping"));
    char data[64];
    const auto n = co_await stream->read_some(data, sizeof data);
    EXPECT_EQ(std::string_view(data, n.value()), "ping");
    stream->shutdown_write();
    EXPECT_EQ((co_await stream->read_some(data, sizeof data)).value(), 0u);
  });
}

}  // namespace
}  // namespace glovebox::http
