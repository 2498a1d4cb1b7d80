// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <gtest/gtest.h>

#include <atomic>

#include "http/json.h"
#include "http/router.h"
#include "http/test_server.h"

namespace glovebox::http {
namespace {

using testing::body_of;
using testing::eventually;
using testing::get;
using testing::post;
using testing::Raw;
using testing::status_of;
using testing::TestServer;

// Answers "<method> <path>|<body>", and notes what it saw.
struct Echo {
  std::atomic<int> calls{0};
  std::atomic<int> last_error{-1};
  size_t limit = 1 << 20;

  Handler handler() {
    return [this](Exchange& exchange) { return run(exchange); };
  }
  Awaitable<void> run(Exchange& exchange) {
    ++calls;
    auto body = co_await exchange.body.read_all(limit);
    if (!body) {
      last_error = static_cast<int>(body.error().code);
      co_await exchange.response.send_error(body.error());
      co_return;
    }
    Headers headers{{"Content-Type", "text/plain"}};
    std::string text = exchange.request.method + " " + exchange.request.path + "|" + *body;
    co_await exchange.response.send(200, std::move(headers), std::move(text));
  }
};

TEST(Server, AnswersAndKeepsTheConnection) {
  Echo echo;
  TestServer server(echo.handler());
  Raw raw(server.port());
  for (int i = 0; i < 3; ++i) {
    raw.send(post("/a%20b?x=1", "hello"));
    const std::string response = raw.read_response();
    EXPECT_EQ(status_of(response), 200);
    EXPECT_EQ(body_of(response), "POST /a%20b|hello");
    EXPECT_NE(response.find("\r\nDate: "), response.npos);
    EXPECT_EQ(response.find("Connection"), response.npos);
  }
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Server, AReasonOfTheHandlersOwnStaysOneLine) {
  TestServer server([](Exchange& exchange) -> Awaitable<void> {
    const bool is_first = exchange.request.path == "/first";
    if (is_first) exchange.response.set_reason("not\r\nX-Evil: 1 \xC3\xA9 here");
    co_await exchange.response.send(403, {}, "no");
  });
  Raw raw(server.port());
  raw.send(get("/first"));
  EXPECT_TRUE(raw.read_response().starts_with("HTTP/1.1 403 not??X-Evil: 1 ?? here\r\nDate"));
  raw.send(get("/second"));
  EXPECT_TRUE(raw.read_response().starts_with("HTTP/1.1 403 Forbidden\r\n"));
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  Echo echo;
  TestServer server(echo.handler());
  Raw raw(server.port());
  raw.send(post("/1", "a") + get("/2") + "\r\n" + post("/3", "c") +
           get("/4", "Connection: close\r\n"));
  const std::string all = raw.read_all();
  size_t at = 0;
  for (const char* part : {"POST /1|a", "GET /2|", "POST /3|c", "GET /4|"}) {
    at = all.find(part, at);
    ASSERT_NE(at, all.npos) << part << "\n" << all;
  }
}

TEST(Server, TakesARequestInSingleBytes) {
  Echo echo;
  TestServer server(echo.handler());
  Raw raw(server.port());
  for (const char c : post("/slow", "x", "Transfer-Encodin: no\r\n")) raw.send(std::string(1, c));
  EXPECT_EQ(body_of(raw.read_response()), "POST /slow|x");
}

struct Shape {
  const char* name;
  std::string bytes;
  int status;
};

// Every answer of the protocol level is JSON in the one form, and the connection closes: what
// follows cannot be trusted.
TEST(Server, RefusesMalformedRequests) {
  const std::string h = "Host: x\r\n";
  const Shape shapes[] = {
      {"length and coding",
       "POST / HTTP/1.1\r\n" + h +
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"coding and length",
       "POST / HTTP/1.1\r\n" + h +
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
       400},
      {"two lengths",
       "POST / HTTP/1.1\r\n" + h + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400},
      {"equal lengths",
       "POST / HTTP/1.1\r\n" + h + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 400},
      {"length list", "POST / HTTP/1.1\r\n" + h + "Content-Length: 5, 5\r\n\r\nabcde", 400},
      {"signed length", "POST / HTTP/1.1\r\n" + h + "Content-Length: +5\r\n\r\nabcde", 400},
      {"negative length", "POST / HTTP/1.1\r\n" + h + "Content-Length: -5\r\n\r\nabcde", 400},
      {"hex length", "POST / HTTP/1.1\r\n" + h + "Content-Length: 0x5\r\n\r\nabcde", 400},
      {"empty length", "POST / HTTP/1.1\r\n" + h + "Content-Length:\r\n\r\n", 400},
      {"huge length", "POST / HTTP/1.1\r\n" + h + "Content-Length: 99999999999999999999\r\n\r\n",
       400},
      {"2^63 length", "POST / HTTP/1.1\r\n" + h + "Content-Length: 9223372036854775808\r\n\r\n",
       400},
      {"gzip coding", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"gzip, chunked",
       "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {"chunked twice",
       "POST / HTTP/1.1\r\n" + h +
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"chunked, identity",
       "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501},
      {"xchunked", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
      {"vertical tab coding",
       "POST / HTTP/1.1\r\n" + h +
           "Transfer-Encoding: \x0b"
           "chunked\r\n\r\n0\r\n\r\n",
       400},
      {"coding in 1.0", "POST / HTTP/1.0\r\n" + h + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       400},
      {"folded header", "GET / HTTP/1.1\r\n" + h + "A: b\r\n c\r\n\r\n", 400},
      {"folded first header", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400},
      {"bare LF", "GET / HTTP/1.1\n" + h + "\n", 400},
      {"bare LF in a header", "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400},
      {"bare CR", "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400},
      {"NUL", std::string("GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 35), 400},
      {"blank before colon", "GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400},
      {"blank in name", "GET / HTTP/1.1\r\n" + h + "A B: c\r\n\r\n", 400},
      {"no name", "GET / HTTP/1.1\r\n" + h + ": c\r\n\r\n", 400},
      {"no colon", "GET / HTTP/1.1\r\n" + h + "abc\r\n\r\n", 400},
      {"no host", "GET / HTTP/1.1\r\nA: b\r\n\r\n", 400},
      {"two hosts", "GET / HTTP/1.1\r\n" + h + h + "\r\n", 400},
      {"host with blank", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
      {"no target", "GET  HTTP/1.1\r\n" + h + "\r\n", 400},
      {"blank in target", "GET /a b HTTP/1.1\r\n" + h + "\r\n", 400},
      {"relative target", "GET a HTTP/1.1\r\n" + h + "\r\n", 400},
      {"fragment", "GET /a#b HTTP/1.1\r\n" + h + "\r\n", 400},
      {"foreign scheme", "GET ftp://x/ HTTP/1.1\r\n" + h + "\r\n", 400},
      {"star", "GET * HTTP/1.1\r\n" + h + "\r\n", 400},
      {"control in target", "GET /a\x01 HTTP/1.1\r\n" + h + "\r\n", 400},
      {"bad method", "G(T / HTTP/1.1\r\n" + h + "\r\n", 400},
      {"no version", "GET /\r\n" + h + "\r\n", 400},
      {"version 2", "GET / HTTP/2.0\r\n" + h + "\r\n", 505},
      {"version 1.2", "GET / HTTP/1.2\r\n" + h + "\r\n", 505},
      {"lower case version", "GET / http/1.1\r\n" + h + "\r\n", 400},
      {"h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"TLS hello", std::string("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 11), 400},
      {"three empty lines", "\r\n\r\n\r\nGET / HTTP/1.1\r\n" + h + "\r\n", 400},
      {"long target", "GET /" + std::string(17 << 10, 'a') + " HTTP/1.1\r\n" + h + "\r\n", 414},
      {"endless target", "GET /" + std::string(20 << 10, 'a'), 414},
      {"large header", "GET / HTTP/1.1\r\n" + h + "A: " + std::string(40 << 10, 'a') + "\r\n\r\n",
       431},
      {"unknown expectation",
       "POST / HTTP/1.1\r\n" + h + "Expect: 200-ok\r\nContent-Length: 1\r\n\r\na", 417},
  };
  Echo echo;
  TestServer server(echo.handler());
  for (const Shape& shape : shapes) {
    Raw raw(server.port());
    raw.send(shape.bytes + get("/smuggled"));
    const std::string response = raw.read_all();
    EXPECT_EQ(status_of(response), shape.status) << shape.name << "\n" << response;
    EXPECT_EQ(response.find("\nHTTP/1.1 "), response.npos) << shape.name << ": a second answer\n"
                                                           << response;
    EXPECT_NE(response.find("Connection: close\r\n"), response.npos) << shape.name;
    const auto body = json::parse_object(body_of(response));
    ASSERT_TRUE(body) << shape.name;
    EXPECT_TRUE(body->at("error").as_object().contains("hint")) << shape.name;
  }
  EXPECT_EQ(echo.calls, 0);
}

TEST(Server, BoundsTheNumberOfHeaders) {
  Echo echo;
  TestServer server(echo.handler());
  std::string headers;
  for (int i = 0; i < 99; ++i) headers += "A" + std::to_string(i) + ": b\r\n";
  Raw fits(server.port());
  fits.send(get("/", headers));  // with Host: 100
  EXPECT_EQ(status_of(fits.read_response()), 200);
  Raw above(server.port());
  above.send(get("/", headers + "B: c\r\n"));
  EXPECT_EQ(status_of(above.read_all()), 431);
}

TEST(Server, UnderstandsTheFormsOfATarget) {
  Echo echo;
  TestServer server(echo.handler());
  const std::pair<const char*, const char*> cases[] = {
      {"GET http://other.example:8/p/q?x HTTP/1.1", "GET /p/q|"},
      {"GET HTTPS://a?x HTTP/1.1", "GET /|"},
      {"OPTIONS * HTTP/1.1", "OPTIONS *|"},
      {"CONNECT a:443 HTTP/1.1", "CONNECT a:443|"},
      {"GET /\xC3\xA9//x HTTP/1.1", "GET /\xC3\xA9//x|"}};
  Raw raw(server.port());
  for (const auto& [line, answer] : cases) {
    raw.send(std::string(line) + "\r\nHost: x\r\n\r\n");
    EXPECT_EQ(body_of(raw.read_response()), answer) << line;
  }
}

TEST(Server, SpeaksHttp10) {
  Echo echo;
  TestServer server(echo.handler());
  Raw once(server.port());
  once.send("GET /a HTTP/1.0\r\n\r\n");
  const std::string response = once.read_all();
  EXPECT_EQ(body_of(response), "GET /a|");
  EXPECT_NE(response.find("Connection: close"), response.npos);
  Raw kept(server.port());
  kept.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n");
  EXPECT_NE(kept.read_response().find("Connection: keep-alive"), std::string::npos);
  EXPECT_EQ(body_of(kept.read_all()), "GET /b|");
}

TEST(Server, ReadsChunkedBodies) {
  Echo echo;
  TestServer server(echo.handler());
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n";
  const std::pair<std::string, std::string> good[] = {
      {"0\r\n\r\n", ""},
      {"1\r\na\r\n0\r\n\r\n", "a"},
      {"A;name=value;q=\"x;y\"\r\n0123456789\r\n00003\r\nabc\r\n0;last\r\nTrailer: "
       "x\r\nContent-Type: y\r\n\r\n",
       "0123456789abc"}};
  for (const auto& [bytes, body] : good) {
    Raw raw(server.port());
    raw.send(head + bytes + get("/next"));
    EXPECT_EQ(body_of(raw.read_response()), "POST /|" + body) << bytes;
    EXPECT_EQ(body_of(raw.read_response()), "GET /next|") << bytes;
    Raw slow(server.port());
    for (const char c : head + bytes) slow.send(std::string(1, c));
    EXPECT_EQ(body_of(slow.read_response()), "POST /|" + body) << bytes;
  }
}

TEST(Server, RefusesBrokenChunks) {
  Echo echo;
  TestServer server(echo.handler());
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string bad[] = {"x\r\na\r\n0\r\n\r\n",
                             "-1\r\na\r\n",
                             "1\r\nab\r\n0\r\n\r\n",
                             "1\na\n0\n\n",
                             "0x1\r\na\r\n0\r\n\r\n",
                             "\r\n\r\n",
                             "fffffffffffffffff\r\na",
                             "10000000000000000\r\na",
                             "1;" + std::string(20000, 'e'),
                             "1 \r\na\r\n0\r\n\r\n" + std::string(0, ' '),
                             "0\r\nTransfer-Encoding: chunked\r\n\r\n"};
  for (const std::string& bytes : bad) {
    if (bytes.starts_with("1 ")) continue;  // blank before CRLF: tolerated by RFC 9112, 7.1.1 (BWS)
    echo.last_error = -1;
    Raw raw(server.port());
    raw.send(head + bytes + get("/smuggled"));
    const std::string response = raw.read_all();
    EXPECT_EQ(status_of(response), 400) << bytes.substr(0, 40) << "\n" << response;
    EXPECT_EQ(response.find("/smuggled"), response.npos) << bytes;
    EXPECT_EQ(echo.last_error, static_cast<int>(Code::kInvalidArgument)) << bytes.substr(0, 40);
  }
}

TEST(Server, ClaimedChunkSizesCostNoMemoryAndBodiesAreBounded) {
  Echo echo;
  echo.limit = 1000;
  TestServer server(echo.handler());
  Raw chunked(server.port());
  chunked.send(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n" +
      std::string(2000, 'a'));
  EXPECT_EQ(status_of(chunked.read_all()), 413);
  Raw sized(server.port());
  sized.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775807\r\n\r\n");
  EXPECT_EQ(status_of(sized.read_all()), 413);  // at once: not a byte of the body was sent
}

TEST(Server, AnswersContinueOnlyWhenTheBodyIsWanted) {
  Echo echo;
  echo.limit = 10;
  TestServer server(echo.handler());
  Raw raw(server.port());
  raw.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(raw.read_for("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  raw.send("ok");
  EXPECT_EQ(body_of(raw.read_response()), "POST /a|ok");
  raw.send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
  const std::string refused = raw.read_all();
  EXPECT_EQ(status_of(refused), 413);
  EXPECT_NE(refused.find("Connection: close"), refused.npos);
  Raw eager(server.port());  // did not wait: no 100 is due
  eager.send("POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nok");
  EXPECT_EQ(status_of(eager.read_response()), 200);
  Raw empty(server.port());
  empty.send("GET /d HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(status_of(empty.read_response()), 200);
}

// A handler that answers without a look at the body.
Awaitable<void> ignore_body(Exchange& exchange) {
  co_await exchange.response.send(200, {}, "done");
}

TEST(Server, SkipsAnUnreadBodyOrCloses) {
  TestServer server(ignore_body);
  Raw small(server.port());
  small.send(post("/", std::string(100'000, 'a')) + get("/next"));
  EXPECT_EQ(status_of(small.read_response()), 200);
  EXPECT_EQ(status_of(small.read_response()), 200);
  small.send(
      "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" +
      get("/"));
  EXPECT_EQ(status_of(small.read_response()), 200);
  EXPECT_EQ(status_of(small.read_response()), 200);
  Raw large(server.port());
  large.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\nabc");
  const std::string response = large.read_all();
  EXPECT_EQ(body_of(response), "done");
  EXPECT_NE(response.find("Connection: close"), response.npos);
}

TEST(Server, AnAnswerSurvivesAClientThatIsStillSending) {
  TestServer server(ignore_body);
  for (int i = 0; i < 20; ++i) {
    Raw raw(server.port());
    raw.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
    raw.send(std::string(2'000'000, 'a'));  // nobody reads this
    EXPECT_EQ(status_of(raw.read_all()), 200);
    EXPECT_FALSE(raw.was_reset());
  }
}

// "/stream" sends ten pieces, "/cut" breaks off after one, "/sized" announces 10 bytes and "/lie"
// writes more.
Awaitable<void> stream(Exchange& exchange) {
  const std::string path = exchange.request.path;
  Headers headers;
  if (path == "/sized" || path == "/lie" || path == "/short")
    headers.emplace_back("Content-Length", "10");
  co_await exchange.response.begin(200, std::move(headers));
  const int pieces = path == "/stream" || path == "/sized" ? 10 : path == "/lie" ? 11 : 1;
  for (int i = 0; i < pieces; ++i) {
    const std::string piece(1, static_cast<char>('a' + i));
    co_await exchange.response.write(piece);
    co_await exchange.response.write("");
  }
  if (path == "/throw") throw std::runtime_error("half way");
  if (path == "/abort") exchange.response.abort();
  if (path != "/return") co_await exchange.response.end();
}

TEST(Server, StreamsInChunksOrByLength) {
  TestServer server(stream);
  Raw raw(server.port());
  raw.send(get("/stream"));
  std::string expected;
  for (char c = 'a'; c <= 'j'; ++c) expected += std::string("1\r\n") + c + "\r\n";
  EXPECT_NE(raw.read_for("\r\n\r\n").find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(raw.read_for("0\r\n\r\n"), expected + "0\r\n\r\n");
  raw.send(get("/sized"));
  const std::string sized = raw.read_response();
  EXPECT_EQ(body_of(sized), "abcdefghij");
  EXPECT_EQ(sized.find("chunked"), sized.npos);
  Raw old(server.port());
  old.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(body_of(old.read_all()), "abcdefghij");
}

TEST(Server, ABrokenStreamNeverLooksWhole) {
  TestServer server(stream);
  for (const char* path : {"/throw", "/abort", "/return"}) {
    Raw raw(server.port());
    raw.send(get(path));
    const std::string all = raw.read_all();
    EXPECT_TRUE(all.ends_with("1\r\na\r\n")) << path << all;
    Raw old(server.port());  // without chunks only a reset tells
    old.send("GET " + std::string(path) + " HTTP/1.0\r\n\r\n");
    old.read_all();
    EXPECT_TRUE(old.was_reset()) << path;
  }
  for (const char* path : {"/lie", "/short"}) {
    Raw raw(server.port());
    raw.send(get(path));
    const std::string body = body_of(raw.read_all());
    EXPECT_LE(body.size(), 10u) << path;
  }
}

TEST(Server, HeadHasTheHeadersOnly) {
  TestServer server([](Exchange& exchange) -> Awaitable<void> {
    return exchange.request.path == "/echo" ? ignore_body(exchange) : stream(exchange);
  });
  Raw raw(server.port());
  for (const char* path : {"/echo", "/stream", "/sized"}) {
    raw.send("HEAD " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(status_of(raw.read_response(true)), 200) << path;
  }
  raw.send(get("/echo", "Connection: close\r\n"));
  EXPECT_EQ(body_of(raw.read_all()), "done");  // not a byte of the three bodies before it
}

Awaitable<void> misbehave(Exchange& exchange) {
  const std::string path = exchange.request.path;
  if (path == "/throw") throw std::runtime_error("secret text");
  if (path == "/none") co_return;
  if (path == "/inject") {
    Headers headers{{"X", "a\r\nSet-Cookie: b"}};
    co_await exchange.response.send(200, std::move(headers), "");
  }
  if (path == "/framing") {
    Headers headers{{"Transfer-Encoding", "gzip"}};
    co_await exchange.response.send(200, std::move(headers), "");
  }
  if (path == "/twice") {
    co_await exchange.response.send(200, {}, "one");
    EXPECT_FALSE(co_await exchange.response.send(200, {}, "two"));
    EXPECT_FALSE(co_await exchange.response.begin(200, {}));
    EXPECT_FALSE(co_await exchange.response.write("x"));
    EXPECT_FALSE(co_await exchange.response.end());
  }
}

TEST(Server, TurnsHandlerFaultsInto500AndGoesOn) {
  TestServer server(misbehave);
  Raw raw(server.port());
  for (const char* path : {"/throw", "/none", "/inject", "/framing"}) {
    raw.send(get(path));
    const std::string response = raw.read_response();
    EXPECT_EQ(status_of(response), 500) << path;
    EXPECT_EQ(response.find("secret"), response.npos);
    EXPECT_EQ(response.find("Set-Cookie"), response.npos);
  }
  raw.send(get("/twice"));
  EXPECT_EQ(body_of(raw.read_response()), "one");
}

TEST(Router, AnswersOverTheWire) {
  Router router;
  router.add("POST", "/v1/x/{id}", [](Exchange& exchange, const Params& params) -> Awaitable<void> {
    std::string id = params.at("id");
    co_await exchange.response.send(201, {}, std::move(id));
  });
  TestServer server([&](Exchange& exchange) { return router.handle(exchange); });
  Raw raw(server.port());
  raw.send(post("/v1//x/%C3%A9", ""));
  EXPECT_EQ(body_of(raw.read_response()), "\xC3\xA9");
  raw.send(get("/v1/x/1"));
  const std::string wrong = raw.read_response();
  EXPECT_EQ(status_of(wrong), 405);
  EXPECT_NE(wrong.find("Allow: POST\r\n"), wrong.npos);
  raw.send(get("/nothing"));
  EXPECT_EQ(status_of(raw.read_response()), 404);
  raw.send(post("/v1/x/1", "zz", "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(status_of(raw.read_response()), 415);
  raw.send(post("/v1/x/1", "zz", "Content-Encoding: identity\r\n"));
  EXPECT_EQ(status_of(raw.read_response()), 201);
}

}  // namespace
}  // namespace glovebox::http
