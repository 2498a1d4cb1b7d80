// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/client_hello.h"

#include <gtest/gtest.h>

#include "egress/testing/hello.h"

namespace glovebox::egress {
namespace {

using testing::extension;
using testing::hello_message;
using testing::in_records;
using testing::server_names;

constexpr uint16_t kGrease = 0x3A3A, kAlpn = 16, kEncryptedHello = 0xFE0D;

std::string name_in(const std::string& extensions, size_t record = 16384) {
  const auto hello = parse_client_hello(in_records(hello_message(extensions), record));
  if (!hello) return "refused";
  return *hello ? (**hello).server_name : "incomplete";
}

TEST(ClientHello, NamesItsServer) {
  EXPECT_EQ(name_in(server_names({"allowed.test"})), "allowed.test");
  EXPECT_EQ(name_in(extension(kGrease, "") + server_names({"Allowed.TEST."}) +
                    extension(kGrease + 0x1010, "x")),
            "allowed.test");
  EXPECT_EQ(name_in(extension(kAlpn, "x")), "");
  EXPECT_EQ(name_in(""), "");
}

TEST(ClientHello, IsReadOverAnyRecordsAndSegments) {
  const std::string message = hello_message(server_names({"allowed.test"}));
  for (size_t record : {1, 2, 3, 5, 17, 60}) {
    const std::string bytes = in_records(message, record);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const auto partial = parse_client_hello(std::string_view(bytes).substr(0, n));
      ASSERT_TRUE(partial) << record << " " << n;
      ASSERT_FALSE(*partial) << record << " " << n;
    }
    const auto whole = parse_client_hello(bytes);
    ASSERT_TRUE(whole && *whole);
    EXPECT_EQ((**whole).server_name, "allowed.test");
  }
}

TEST(ClientHello, IsRefusedWhenItCanBeReadInTwoWays) {
  EXPECT_EQ(name_in(server_names({"allowed.test", "evil.test"})), "refused");
  EXPECT_EQ(name_in(server_names({"allowed.test"}) + server_names({"evil.test"})), "refused");
  EXPECT_EQ(name_in(extension(kAlpn, "a") + extension(kAlpn, "b")), "refused");
  EXPECT_EQ(name_in(server_names({})), "refused");
  EXPECT_EQ(name_in(extension(0, "")), "refused");
  EXPECT_EQ(name_in(extension(0, testing::vector('\x07' + testing::vector("allowed.test", 2), 2))),
            "refused");  // another type of name
  EXPECT_EQ(name_in(extension(0, testing::vector(std::string("\0\0\0", 3), 2) + "x")), "refused");
}

TEST(ClientHello, IsRefusedWhenTheNameIsNoHostName) {
  for (const std::string name : {"", "127.0.0.1", "2130706433", "0x7f.1", "[::1]",
                                 "allowed.test:443", "*.test", "a..b", "a b"}) {
    EXPECT_EQ(name_in(server_names({name})), "refused") << name;
  }
  EXPECT_EQ(name_in(server_names({std::string("allowed.test\0.evil.test", 23)})), "refused");
}

TEST(ClientHello, TellsOfAnEncryptedOne) {
  const auto hello = parse_client_hello(in_records(
      hello_message(extension(kEncryptedHello, "random") + server_names({"outer.test"})), 16384));
  ASSERT_TRUE(hello && *hello);
  EXPECT_TRUE((**hello).has_encrypted_hello);
  EXPECT_EQ((**hello).server_name, "outer.test");
}

TEST(ClientHello, IsRefusedWhenMalformed) {
  const std::string message = hello_message(server_names({"allowed.test"}));
  EXPECT_FALSE(parse_client_hello(
      "\x16\x03\x01" + testing::vector("\x02" + message.substr(1), 2)));  // a ServerHello
  EXPECT_FALSE(parse_client_hello(in_records(message, 10).substr(0, 15) + "\x17\x03\x03" +
                                  testing::vector("x", 2)));
  EXPECT_FALSE(parse_client_hello(std::string_view("\x16\x03\x01\x00\x00", 5)));
  EXPECT_FALSE(parse_client_hello("\x16\x03\x01\xff\xff"));
  EXPECT_FALSE(
      parse_client_hello("\x16\x03\x01" + testing::vector(std::string("\x01\xff\xff\xff", 4), 2)));
  std::string longer = message + "x";
  longer[3] = static_cast<char>(longer[3] + 1);
  EXPECT_FALSE(parse_client_hello(in_records(longer, 16384)));  // a byte behind the extensions
}

TEST(ClientHello, IsBounded) {
  const std::string message = hello_message(extension(kAlpn, std::string(40'000, 'x')));
  EXPECT_FALSE(parse_client_hello(in_records(message, 16384).substr(0, 20)));
}

TEST(Classify, TellsProtocolsApart) {
  EXPECT_EQ(classify(""), Opening::kUndecided);
  EXPECT_EQ(classify("\x16"), Opening::kUndecided);
  EXPECT_EQ(classify("\x16\x03\x01"), Opening::kTls);
  EXPECT_EQ(classify("\x16\x04\x01"), Opening::kOther);
  EXPECT_EQ(classify("GE"), Opening::kUndecided);
  EXPECT_EQ(classify("GET / HTTP/1.1"), Opening::kUndecided);
  EXPECT_EQ(classify("GET / HTTP/1.1\r\n"), Opening::kHttp);
  EXPECT_EQ(classify("M-SEARCH * HTTP/1.1\n"), Opening::kHttp);
  EXPECT_EQ(classify("PRI * HTTP/2.0\r\n"), Opening::kHttp);
  EXPECT_EQ(classify("GET /\r\n"), Opening::kOther);
  EXPECT_EQ(classify("EHLO me\r\n"), Opening::kOther);
  EXPECT_EQ(classify("get / HTTP/1.1\r\n"), Opening::kHttp);
  EXPECT_EQ(classify("SSH-2.0-x"), Opening::kOther);
  EXPECT_EQ(classify("\r\nGET / HTTP/1.1\r\n"), Opening::kOther);
  EXPECT_EQ(classify("GET " + std::string(kMaxRequestLine, 'x')), Opening::kOther);
}

}  // namespace
}  // namespace glovebox::egress
