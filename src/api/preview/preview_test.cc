// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "api/preview/credentials.h"
#include "api/preview/headers.h"
#include "api/preview/port_state.h"

namespace glovebox::api::preview {
namespace {

http::Request request_for(const std::string& host, const std::string& path) {
  http::Request request;
  request.method = "GET";
  request.target = path;
  request.path = path.substr(0, path.find('?'));
  if (path.find('?') != path.npos) request.raw_query = path.substr(path.find('?') + 1);
  request.query = http::parse_query(request.raw_query);
  request.headers = {{"Host", host}};
  request.peer = "192.0.2.7:4711";
  return request;
}

TEST(PreviewAddress, HostsAndPathsNameAPort) {
  struct Case {
    const char *host, *path, *id;
    int port;
    const char* app_path;
  };
  const Case cases[] = {
      {"3000-sb-abc.localhost:7070", "/x", "sb-abc", 3000, "/x"},
      {"3000-SB-ABC.LocalHost.", "/", "sb-abc", 3000, "/"},
      {"sb-abc-3000.localhost", "/", "sb-abc", 3000, "/"},
      {"3000-sb-abc.preview.example.com", "/", "sb-abc", 3000, "/"},
      {"sb-abc-65535.preview.example.com:8443", "/", "sb-abc", 65535, "/"},
      {"example.com", "/p/sb-abc/80/", "sb-abc", 80, "/"},
      {"example.com", "/p/sb-abc/80/a%2Fb//c", "sb-abc", 80, "/a%2Fb//c"},
      {"example.com", "/p/sb-abc/80", "sb-abc", 80, ""},
      // The host decides before the path.
      {"3000-sb-abc.localhost", "/p/sb-xyz/80/", "sb-abc", 3000, "/p/sb-xyz/80/"},
      // Below the domain and below /p nothing else is served.
      {"www.preview.example.com", "/", "", 0, "/"},
      {"a.3000-sb-abc.preview.example.com", "/", "", 0, "/"},
      {"3000-sb-a_b.preview.example.com", "/", "", 0, "/"},
  };
  for (const Case& c : cases) {
    const auto address = address_of(request_for(c.host, c.path), "preview.example.com");
    ASSERT_TRUE(address.has_value()) << c.host << c.path;
    EXPECT_EQ(address->port, c.port) << c.host << c.path;
    if (c.port == 0) continue;
    EXPECT_EQ(address->id, c.id);
    EXPECT_EQ(address->path, c.app_path);
  }
}

TEST(PreviewAddress, OddPathsBelowPNameNoPort) {
  for (const char* path : {"/p/", "/p/sb-abc", "/p/sb-abc/", "/p/sb-abc/0/", "/p/sb-abc/65536/", "/p/sb-abc/080/", "/p/sb-abc/+80/", "/p/SB-ABC/80/",
                           "/p//sb-abc/80/", "/p/../80/", "/p/sb-%61bc/80/"}) {
    const auto address = address_of(request_for("example.com", path), "");
    ASSERT_TRUE(address.has_value()) << path;
    EXPECT_EQ(address->port, 0) << path;
  }
}

TEST(PreviewAddress, TheApisRequestsAreNotTaken) {
  for (const char* host : {"localhost:7070", "127.0.0.1:7070", "[::1]:7070", "example.com", "preview.example.com", "3000-sb-abc.example.com",
                           "3000-sb-abclocalhost", "www.localhost", ""}) {
    EXPECT_FALSE(address_of(request_for(host, "/v1/sandboxes"), "preview.example.com").has_value()) << host;
  }
}

TEST(PreviewCredentials, AreFoundAndTakenOut) {
  auto request = request_for("h", "/?a=1&glovebox%5Ftoken=q&b&lizard_token=r");
  request.headers.emplace_back("Cookie", "x=1;glovebox_preview=c; y=2; glovebox_preview = d");
  request.headers.emplace_back("x-glovebox-preview-token", "t");
  request.headers.emplace_back("Referer", "http://h/?glovebox_token=q");
  const Credentials found = credentials_of(request);
  EXPECT_EQ(found.query, (std::vector<std::string>{"q", "r"}));
  EXPECT_EQ(found.headers, (std::vector<std::string>{"t"}));
  EXPECT_EQ(found.cookies, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(strip_query(request.raw_query), "a=1&b");
  strip_headers(request.headers);
  EXPECT_EQ(request.headers, (http::Headers{{"Host", "h"}, {"Cookie", "x=1; y=2"}}));
}

TEST(PreviewCredentials, WhatIsNotOursIsLeftAsItIs) {
  for (const char* query : {"", "a", "&&", "a=%zz&b=c+d", "token=1", "xglovebox_token=1", "=glovebox_token"}) EXPECT_EQ(strip_query(query), query);
}

TEST(PreviewHeaders, LocationsAndCookiesMeanTheAppOnly) {
  Address path{Address::Form::kPath, "sb-abc", 3000, "/p/sb-abc/3000", "/"};
  http::Headers headers{{"Location", "//evil.example/"}, {"Set-Cookie", "a=b; domain=.example.com; PATH=/; Secure"}, {"Set-Cookie", "Path=/x"},
                        {"Set-Cookie", "glovebox_preview =x"}, {"Content-Type", "text/event-stream;charset=utf-8"}};
  edit_response(path, {"http", "h"}, true, headers);
  EXPECT_EQ(headers[0].second, "//evil.example/") << "not the app's, so not ours to change";
  EXPECT_EQ(headers[1].second, "a=b; Path=/p/sb-abc/3000/; Secure");
  EXPECT_EQ(headers[2].second, "Path=/x") << "the name of a cookie is no attribute";
  EXPECT_EQ(headers[3].first, "Content-Type");
  EXPECT_EQ(http::find_header(headers, "X-Accel-Buffering"), "no");
}

TEST(PreviewState, IsReadBackAsWritten) {
  sandbox::SandboxInfo info;
  EXPECT_EQ(port_state(info, 80).generation, 0u);
  const PortState state{7, true, false, true};
  info.attributes.insert(attribute_of(80, state));
  EXPECT_EQ(port_state(info, 80).generation, 7u);
  EXPECT_TRUE(port_state(info, 80).is_public && port_state(info, 80).is_exposed && !port_state(info, 80).is_revoked);
  EXPECT_FALSE(port_state(info, 8).is_public);
  EXPECT_EQ(count_states(info), 1u);
}

TEST(PreviewTokens, DependOnEverythingTheyStandFor) {
  const Tokens tokens(std::string(32, 's')), others(std::string(32, 't'));
  const std::string token = tokens.token("sb-a", 80, 1);
  EXPECT_EQ(token, tokens.token("sb-a", 80, 1));
  for (const std::string& other : {tokens.token("sb-b", 80, 1), tokens.token("sb-a", 81, 1), tokens.token("sb-a", 80, 2), tokens.token("sb-a", 8, 1),
                                   others.token("sb-a", 80, 1)}) {
    EXPECT_FALSE(Tokens::equal(token, other));
  }
  EXPECT_TRUE(Tokens::equal(token, token));
  EXPECT_FALSE(Tokens::equal(token, ""));
}

TEST(PreviewTokens, TheSecretOutlivesTheProcessAndIsNobodyElses) {
  const std::string path = ::testing::TempDir() + "/preview-" + std::to_string(::getpid()) + ".key";
  const auto made = Tokens::load(path), again = Tokens::load(path);
  ASSERT_TRUE(made.has_value() && again.has_value());
  EXPECT_EQ(made->token("sb-a", 1, 0), again->token("sb-a", 1, 0));
  std::ofstream(path, std::ios::trunc) << "short";
  EXPECT_EQ(Tokens::load(path).error().code, Code::kCorrupt);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace glovebox::api::preview
