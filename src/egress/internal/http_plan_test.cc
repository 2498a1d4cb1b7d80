// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/http_plan.h"

#include <gtest/gtest.h>

#include "http/framing.h"

namespace glovebox::egress {
namespace {

const Destination kPort80{{}, policy::parse_address("45.66.0.66"), 80};

tl::expected<RequestPlan, RequestRefusal> plan(const std::string& head,
                                               const Destination& destination = kPort80) {
  http::Request request;
  const auto parsed = http::parse_request_head(head, request);
  EXPECT_TRUE(parsed) << head;
  return plan_request(request, destination);
}

std::string get(const std::string& target, const std::string& host, const std::string& more = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n";
}

TEST(RequestPlan, TakesTheHostInAnyForm) {
  struct Case {
    std::string head, host, target;
  };
  const Case cases[] = {
      {get("/a?b", "allowed.test"), "allowed.test", "/a?b"},
      {get("/", "Allowed.TEST."), "allowed.test", "/"},
      {get("/", "allowed.test:80"), "allowed.test", "/"},
      {get("http://allowed.test", "allowed.test"), "allowed.test", "/"},
      {get("http://allowed.test?x", "allowed.test"), "allowed.test", "/?x"},
      {get("http://Allowed.test:80/p?q", "allowed.test"), "allowed.test", "/p?q"},
      {get("/", "45.66.0.66"), "", "/"},
  };
  for (const auto& c : cases) {
    const auto made = plan(c.head);
    ASSERT_TRUE(made) << c.head << made.error().reason;
    EXPECT_EQ(made->host, c.host) << c.head;
    EXPECT_EQ(made->target, c.target) << c.head;
    EXPECT_EQ(made->port, 80);
  }
}

TEST(RequestPlan, RefusesWhatNamesTwoPlaces) {
  const std::string cases[] = {
      get("http://evil.test/", "allowed.test"),
      get("http://allowed.test/", "evil.test"),
      get("http://allowed.test:81/", "allowed.test"),
      get("/", "allowed.test:81"),
      get("/", "45.66.0.67"),
      get("https://allowed.test/", "allowed.test"),
      get("http://a@allowed.test/", "allowed.test"),
      get("/", "127.1"),
      get("/", "0x7f000001"),
      get("/", "[::1]"),
      get("/", "allowed.test:"),
      get("/", "allowed.test:+80"),
      "get / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
      "CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
      "CONNECT allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
  };
  for (const auto& head : cases) EXPECT_FALSE(plan(head)) << head;
}

TEST(RequestPlan, InsideATunnelTheHostIsFixed) {
  const Destination tunnel{"allowed.test", std::nullopt, 8080};
  EXPECT_TRUE(plan(get("/", "allowed.test:8080"), tunnel));
  EXPECT_TRUE(plan(get("/", "allowed.test"), tunnel));
  EXPECT_FALSE(plan(get("/", "evil.test"), tunnel));
  EXPECT_FALSE(plan(get("/", "45.66.0.66"), tunnel));
  EXPECT_FALSE(plan("CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", tunnel));
}

TEST(RequestPlan, KnowsUpgrades) {
  const auto websocket = plan(get("/", "a.test", "Connection: Upgrade\r\nUpgrade: WebSocket\r\n"));
  ASSERT_TRUE(websocket);
  EXPECT_EQ(websocket->kind, RequestKind::kWebSocket);
  const auto h2c =
      plan(get("/", "a.test",
               "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"));
  ASSERT_FALSE(h2c);
  EXPECT_EQ(h2c.error().rule, "protocol:h2c");
  EXPECT_FALSE(plan(get("/", "a.test", "Upgrade: websocket, h2c\r\n")));
  EXPECT_FALSE(plan(get("/", "a.test", "Upgrade: websocket\r\nUpgrade: h2c\r\n")));
}

TEST(ForwardHead, HasOneHostAndNothingOfTheHop) {
  http::Request request;
  const std::string head =
      get("http://allowed.test/p", "ALLOWED.test",
          "X-Glovebox-Sandbox: sb\r\nx-glovebox-other: 1\r\nProxy-Authorization: p\r\nConnection: "
          "close, X-Kept\r\nX-Kept: 1\r\n");
  ASSERT_TRUE(http::parse_request_head(head, request));
  const auto made = plan_request(request, kPort80);
  ASSERT_TRUE(made);
  EXPECT_EQ(forward_head(request, *made, "X-Ours: 1\r\n"),
            "GET /p HTTP/1.1\r\nHost: allowed.test\r\nX-Kept: 1\r\nConnection: close\r\nX-Ours: "
            "1\r\n\r\n");
}

TEST(ParseAuthority, ReadsHostsAndAddresses) {
  EXPECT_EQ(parse_authority("a.test:443")->port, 443);
  EXPECT_EQ(parse_authority("1.2.3.4")->address->text(), "1.2.3.4");
  for (const auto* text : {"", ":80", "a.test:0", "a.test:65536", "a.test:x", "a.test: 80",
                           "a.test:80:80", "1.2.3", "::1", "[::1]:80", "a b"}) {
    EXPECT_FALSE(parse_authority(text)) << text;
  }
}

}  // namespace
}  // namespace glovebox::egress
