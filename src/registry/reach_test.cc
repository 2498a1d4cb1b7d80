// SPDX-License-Identifier: Apache-2.0
#include "registry/reach.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "http/json.h"

namespace glovebox::registry {
namespace {

Settings settings() {
  Settings out;
  out.pypi = "https://user:secret@index.example/simple";
  out.npm = "http://10.1.2.3:4873";
  out.file_hosts = {"files.corp.example"};
  return out;
}

std::string refused(Reach& reach, std::string_view url, const char* ip, uint16_t port = 443) {
  sockaddr_storage storage{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, ip, &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, ip, &v6.sin6_addr), 1);
    v6.sin6_family = AF_INET6;
  }
  return reach.refuse_address(parse_url(url)->origin, reinterpret_cast<sockaddr*>(&storage));
}

TEST(Reach, MetadataComesFromUpstreamsOnly) {
  const Reach reach(settings());
  EXPECT_TRUE(reach.check(*parse_url("https://index.example/simple/x/"), false));
  EXPECT_TRUE(reach.check(*parse_url("http://10.1.2.3:4873/x"), false));
  for (const char* other : {"http://index.example/simple/x/", "https://index.example:444/", "https://files.example/x", "http://10.1.2.3/x"}) {
    const auto allowed = reach.check(*parse_url(other), false);
    ASSERT_FALSE(allowed) << other;
    EXPECT_EQ(allowed.error().code, Code::kForbidden);
  }
}

TEST(Reach, FilesComeByHttpsFromPublicHosts) {
  const Reach reach(settings());
  EXPECT_TRUE(reach.check(*parse_url("https://files.example/x"), true));
  for (const char* bad : {"http://files.example/x", "https://169.254.169.254/x", "https://127.0.0.1/x", "https://[::1]/x", "https://[::ffff:127.0.0.1]/x"}) {
    EXPECT_FALSE(reach.check(*parse_url(bad), true)) << bad;
  }
}

TEST(Reach, ANameThatLeadsToASpecialAddressIsRefusedAtTheConnection) {
  Reach reach(settings());
  EXPECT_EQ(refused(reach, "https://files.example/x", "169.254.169.254"), "floor:metadata");
  EXPECT_NE(refused(reach, "https://files.example/x", "10.0.0.1"), "");
  EXPECT_NE(refused(reach, "https://files.example/x", "::1"), "");
  EXPECT_NE(refused(reach, "https://files.example/x", "::ffff:10.0.0.1"), "");
  EXPECT_EQ(refused(reach, "https://files.example/x", "45.1.2.3"), "");
  EXPECT_EQ(refused(reach, "https://index.example/x", "10.0.0.1"), "") << "the operator's own upstream may be anywhere";
  EXPECT_EQ(refused(reach, "https://files.corp.example/x", "10.0.0.1"), "") << "named by the operator";
  EXPECT_EQ(refused(reach, "https://files.example:4873/x", "10.1.2.3", 4873), "") << "the address and port of an upstream";
  EXPECT_NE(refused(reach, "https://files.example/x", "10.1.2.3"), "") << "another port there is another service";
}

TEST(Reach, SecretsGoToTheirOriginOnly) {
  const Reach reach(settings());
  EXPECT_EQ(reach.credentials(parse_url("https://index.example/simple/x")->origin), "user:secret");
  EXPECT_EQ(reach.credentials(parse_url("https://index.example:444/")->origin), "");
  EXPECT_EQ(reach.credentials(parse_url("http://index.example/")->origin), "");
}

TEST(SettingsTest, AreReadStrictly) {
  const auto read = [](const char* text) { return parse_settings(*json::parse(text)); };
  const auto good = read(R"({"op":"config","upstreams":{"debian":"http://d.example/debian/"},"cache_bytes":2097152})");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->debian, "http://d.example/debian");
  EXPECT_EQ(good->debian_security, "http://d.example/debian-security");
  EXPECT_EQ(good->cache_bytes, 2097152u);
  for (const char* bad : {R"({"op":"config","upstreams":{"pypi":"ftp://x"}})", R"({"op":"config","upstreams":{"ruby":"https://x"}})",
                          R"({"op":"config","cache_bytes":-1})", R"({"op":"config","other":1})"}) {
    EXPECT_FALSE(read(bad)) << bad;
  }
}

}  // namespace
}  // namespace glovebox::registry
