// SPDX-License-Identifier: Apache-2.0
#include "http/websocket.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/this_coro.hpp>

#include "http/client.h"
#include "http/test_server.h"

namespace glovebox::http {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using testing::Raw;
using testing::run_alone;
using testing::status_of;
using testing::TestServer;

constexpr std::string_view kHandshake =
    "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: "
    "websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

Url url_of(const TestServer& server) {
  return parse_url("ws://127.0.0.1:" + std::to_string(server.port()) + "/ws").value();
}

// Sends every message back, and notes how the connection ended.
struct EchoSocket {
  WebSocketOptions options;
  std::atomic<int> close_code{-1}, error{-1};

  Handler handler() {
    return [this](Exchange& exchange) { return run(exchange); };
  }
  Awaitable<void> run(Exchange& exchange) {
    auto socket = co_await exchange.accept_websocket(options);
    if (!socket) {
      co_await exchange.response.send_error(socket.error());
      co_return;
    }
    for (;;) {
      auto message = co_await (*socket)->read();
      if (!message) {
        close_code = (*socket)->close_code();
        error = static_cast<int>(message.error().code);
        co_return;
      }
      if (message->data == "close") {
        co_await (*socket)->close(4001, "as you wish");
        co_return;
      }
      co_await (*socket)->send(message->is_binary, message->data);
    }
  }
};

// What the server's side notes a moment after the client's has seen the end.
int noted(const std::atomic<int>& value) {
  EXPECT_TRUE(eventually([&] { return value != -1; }));
  return value;
}

TEST(WebSocket, CarriesTextAndBinaryBothWays) {
  EchoSocket echo;
  TestServer server(echo.handler());
  run_alone([&]() -> Awaitable<void> {
    auto socket = (co_await connect_websocket(url_of(server))).value();
    for (const std::string& data : {std::string(""), std::string("\xC3\xA9"), std::string(200, 'a'),
                                    std::string(70'000, 'b'), std::string(1 << 20, 'c')}) {
      EXPECT_TRUE(co_await socket->send(false, data));
      auto message = co_await socket->read();
      EXPECT_FALSE(message.value().is_binary);
      EXPECT_TRUE(message->data == data);
    }
    EXPECT_TRUE(co_await socket->send(true, std::string("\0\xFF", 2)));
    auto message = co_await socket->read();
    EXPECT_TRUE(message.value().is_binary);
    EXPECT_EQ(message->data, std::string("\0\xFF", 2));
    EXPECT_TRUE(co_await socket->close(1000, "bye"));
  });
  EXPECT_TRUE(eventually([&] { return echo.close_code == 1000; }));
  EXPECT_EQ(noted(echo.error), static_cast<int>(Code::kCancelled));
}

TEST(WebSocket, TellsTheClientTheCloseCode) {
  EchoSocket echo;
  TestServer server(echo.handler());
  run_alone([&]() -> Awaitable<void> {
    auto socket = (co_await connect_websocket(url_of(server))).value();
    co_await socket->send(false, "close");
    EXPECT_EQ((co_await socket->read()).error().code, Code::kCancelled);
    EXPECT_EQ(socket->close_code(), 4001);
    EXPECT_FALSE(co_await socket->send(false, "late"));
  });
}

TEST(WebSocket, SendersQueueInOrder) {
  EchoSocket echo;
  TestServer server(echo.handler());
  run_alone([&]() -> Awaitable<void> {
    auto socket = (co_await connect_websocket(url_of(server))).value();
    std::string got;
    auto sender = [](WebSocket& s, std::string text) -> Awaitable<void> {
      EXPECT_TRUE(co_await s.send(false, text));
    };
    auto loop = co_await boost::asio::this_coro::executor;
    for (char c = 'a'; c <= 'j'; ++c)
      spawn(loop, "sender", sender(*socket, std::string(50'000, c)));
    for (int i = 0; i < 10; ++i) got += (co_await socket->read()).value().data[0];
    EXPECT_EQ(got, "abcdefghij");
    co_await socket->close(1000, "");
  });
}

TEST(WebSocket, BoundsMessages) {
  EchoSocket echo;
  echo.options.max_message_bytes = 1000;
  TestServer server(echo.handler());
  run_alone([&]() -> Awaitable<void> {
    auto socket = (co_await connect_websocket(url_of(server))).value();
    co_await socket->send(true, std::string(1001, 'x'));
    EXPECT_FALSE(co_await socket->read());
    EXPECT_EQ(socket->close_code(), 1009);
  });
  EXPECT_EQ(noted(echo.error), static_cast<int>(Code::kPayloadTooLarge));
}

TEST(WebSocket, RefusesWhatIsNoHandshakeAndStaysAnHttpConnection) {
  EchoSocket echo;
  TestServer server(echo.handler());
  Raw raw(server.port());
  for (const char* head : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                           "POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "
                           "websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                           "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "
                           "websocket\r\nSec-WebSocket-Version: 8\r\n"
                           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                           "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "
                           "websocket\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: short\r\n\r\n"}) {
    raw.send(head);
    EXPECT_EQ(status_of(raw.read_response()), 400) << head;
  }
}

TEST(WebSocket, TakesFramesThatCameWithTheHandshake) {
  EchoSocket echo;
  TestServer server(echo.handler());
  Raw raw(server.port());
  // A masked text frame "Hello" (RFC 6455, 5.7), and many headers in front.
  const std::string frame("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", 11);
  raw.send(std::string(kHandshake) + "Cookie: " + std::string(4000, 'c') + "\r\n\r\n" + frame);
  const std::string head = raw.read_for("\r\n\r\n");
  EXPECT_EQ(status_of(head), 101);
  EXPECT_NE(head.find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), head.npos);  // RFC 6455, 1.3
  EXPECT_EQ(raw.read_bytes(7), std::string("\x81\x05Hello", 7));
}

TEST(WebSocket, EndsOnProtocolViolations) {
  const std::string bad[] = {std::string("\x81\x05Hello", 7),           // not masked
                             std::string("\x83\x80\0\0\0\0", 6),        // reserved opcode
                             std::string("\xC1\x80\0\0\0\0", 6),        // reserved bit
                             std::string("\x81\x81\0\0\0\0\xFF", 7),    // text that is not UTF-8
                             std::string("\x80\x80\0\0\0\0", 6),        // continuation of nothing
                             std::string("\x89\xFE\0\x7E\0\0\0\0", 8),  // a ping of 126 bytes
                             std::string("\x82\xFF\x80\0\0\0\0\0\0\0\0\0\0\0", 14)};  // 2^63 bytes
  for (const std::string& bytes : bad) {
    EchoSocket echo;
    TestServer server(echo.handler());
    Raw raw(server.port());
    raw.send(std::string(kHandshake) + "\r\n" + bytes);
    EXPECT_EQ(status_of(raw.read_for("\r\n\r\n")), 101);
    EXPECT_TRUE(eventually([&] { return echo.error != -1; })) << static_cast<int>(bytes[0]);
    EXPECT_NE(echo.error, static_cast<int>(Code::kTimeout));
  }
}

TEST(WebSocket, PingsASilentPeerAndCutsADeadOne) {
  EchoSocket echo;
  echo.options.idle_timeout = 200ms;
  TestServer server(echo.handler());
  Raw dead(server.port());
  dead.send(std::string(kHandshake) + "\r\n");
  dead.read_for("\r\n\r\n");
  EXPECT_EQ(dead.read_bytes(2), std::string("\x89\x00", 2));  // never answered
  EXPECT_TRUE(eventually([&] { return echo.error == static_cast<int>(Code::kTimeout); }));
  EXPECT_TRUE(eventually([&] { return server.connections() == 0; }));
}

// Whether a client that answers pings, and says nothing else, has its connection after five times the idle timeout.
bool is_kept(std::chrono::milliseconds idle_timeout) {
  EchoSocket echo;
  echo.options.idle_timeout = idle_timeout;
  TestServer server(echo.handler());
  bool kept = false;
  run_alone([&]() -> Awaitable<void> {
    auto connected = co_await connect_websocket(url_of(server));
    if (!connected) co_return;
    const std::shared_ptr<WebSocket> socket = std::move(*connected);
    auto late = [](std::shared_ptr<WebSocket> s, std::chrono::milliseconds pause) -> Awaitable<void> {
      co_await sleep_for(pause);
      co_await s->send(false, "still here");
    };
    spawn(co_await boost::asio::this_coro::executor, "late", late(socket, 5 * idle_timeout));
    const auto message = co_await socket->read();
    kept = message && message->data == "still here";
    if (kept) co_await socket->close(1000, "");
  });
  return kept;
}

// Where the machine stands still for longer than the timeout, the client does not answer in time either.
TEST(WebSocket, AnAnsweringPeerIsKept) { EXPECT_TRUE(is_kept(100ms) || is_kept(1000ms) || is_kept(8000ms)); }

TEST(WebSocket, ReportsARefusedHandshake) {
  TestServer server([](Exchange& exchange) -> Awaitable<void> {
    co_await exchange.response.send_error(Error{Code::kForbidden, "no"});
  });
  run_alone([&]() -> Awaitable<void> {
    auto socket = co_await connect_websocket(url_of(server));
    EXPECT_EQ(socket.error().code, Code::kUnavailable);
    EXPECT_EQ(socket.error().details.at("status"), "403");
    EXPECT_NE(socket.error().details.at("body").find("forbidden"), std::string::npos);
  });
}

TEST(WebSocket, IsCutWhenTheServerStops) {
  EchoSocket echo;
  TestServer server(echo.handler());
  Raw raw(server.port());
  raw.send(std::string(kHandshake) + "\r\n");
  raw.read_for("\r\n\r\n");
  server.run([](Server& s) -> Awaitable<void> { co_await s.stop(after(10ms)); });
  EXPECT_EQ(noted(echo.error), static_cast<int>(Code::kCancelled));
  EXPECT_EQ(noted(echo.close_code), 1006);
}

}  // namespace
}  // namespace glovebox::http
