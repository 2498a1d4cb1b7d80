// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/dns_message.h"

#include <gtest/gtest.h>

namespace glovebox::egress::dns {
namespace {

using std::string_literals::operator""s;

std::string question(const std::string& wire_name, uint16_t type = kA) {
  return "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"s + wire_name +
         static_cast<char>(type >> 8) + static_cast<char>(type) + "\x00\x01"s;
}

// A response to the query 0x1234 for a.test with `answers` records.
std::string response(int answers, const std::string& records, uint8_t rcode = 0) {
  return "\x12\x34\x81"s + static_cast<char>(0x80 | rcode) + "\x00\x01\x00"s +
         static_cast<char>(answers) + "\x00\x00\x00\x00"s + "\x01"s +
         "a\x04test\x00\x00\x01\x00\x01"s + records;
}
const std::string kPointer = "\xC0\x0C";
std::string a_record(const std::string& owner, const std::string& address, char ttl = 60) {
  return owner + "\x00\x01\x00\x01\x00\x00\x00"s + ttl + "\x00\x04"s + address;
}
std::string cname_record(const std::string& owner, const std::string& target) {
  return owner + "\x00\x05\x00\x01\x00\x00\x00\x1e\x00"s + static_cast<char>(target.size()) +
         target;
}

TEST(DnsQuery, IsRead) {
  const auto query =
      parse_query(question("\x03WwW\x07"
                           "Example\x04test\x00"s,
                           kTxt));
  ASSERT_TRUE(query);
  EXPECT_EQ(query->id, 0x1234);
  EXPECT_EQ(query->name, "www.example.test");
  EXPECT_EQ(query->type, kTxt);
  EXPECT_TRUE(query->recursion_desired);
  EXPECT_FALSE(query->has_edns);
}

TEST(DnsQuery, KeepsWhatIsNoHostNameApart) {
  const auto query =
      parse_query(question("\x03"
                           "a.b\x02\\\xff\x00"s));
  ASSERT_TRUE(query);
  EXPECT_EQ(query->name, "a\\046b.\\092\\255");
}

TEST(DnsQuery, IsRefusedWhenMalformed) {
  const std::string good = question(
      "\x01"
      "a\x00"s);
  ASSERT_TRUE(parse_query(good));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_query(good.substr(0, n))) << n;
  EXPECT_FALSE(parse_query(question("\xC0\x0C"s)));  // a pointer to itself
  EXPECT_FALSE(parse_query(question("\xC0\x06"s)));  // into the header, which is another one in the answer
  EXPECT_FALSE(
      parse_query(question("\x40"
                           "a\x00"s)));  // a label type that does not exist
  EXPECT_FALSE(
      parse_query(question("\x02"
                           "a\x00"s)));
  std::string longest;
  for (int i = 0; i < 5; ++i) longest += "\x3f" + std::string(63, 'x');
  EXPECT_FALSE(parse_query(question(longest + "\x00"s)));  // over 255 bytes
  std::string changed = good;
  changed[2] = '\x81';
  EXPECT_FALSE(parse_query(changed)) << "a response";
  changed = good;
  changed[5] = 2;
  EXPECT_FALSE(parse_query(changed)) << "two questions";
  changed = good;
  changed.back() = 3;
  EXPECT_FALSE(parse_query(changed)) << "class CHAOS";
}

TEST(DnsAnswer, RepeatsTheQuestionByteForByte) {
  const std::string asked = question(
      "\x01"
      "A\x04tEsT\x00"s);
  const auto query = parse_query(asked);
  const std::string answer = build_answer(*query, kNoError, {policy::address_v4(0x2D0A000A)}, 30);
  EXPECT_EQ(answer.substr(12, asked.size() - 12), asked.substr(12));
  const auto read = parse_response(answer, 0x1234, "a.test");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->addresses.size(), 1U);
  EXPECT_EQ(read->addresses[0].text(), "45.10.0.10");
  EXPECT_EQ(read->ttl, 30U);
}

TEST(DnsAnswer, ExplainsARefusalToThoseWhoSpeakEdns) {
  Query query =
      *parse_query(question("\x01"
                            "a\x00"s));
  EXPECT_EQ(build_answer(query, kRefused, {}, 0, {18, "default:none: no"}).find("default:none"),
            std::string::npos);
  query.has_edns = true;
  EXPECT_NE(build_answer(query, kRefused, {}, 0, {18, "default:none: no"}).find("default:none"),
            std::string::npos);
}

TEST(DnsAnswer, IsCutDownWhenItDoesNotFit) {
  const Query query =
      *parse_query(question("\x01"
                            "a\x00"s));
  const std::vector<policy::Address> many(40, policy::address_v4(1));
  const std::string cut = fit(build_answer(query, kNoError, many, 1), query, 512);
  EXPECT_LE(cut.size(), 512U);
  EXPECT_TRUE(cut[2] & 0x02);
  EXPECT_EQ(static_cast<int>(cut[7]), 0);
}

TEST(DnsResponse, FollowsAliases) {
  const std::string target =
      "\x01"
      "b\x04test\x00"s;
  const auto both = parse_response(
      response(2, a_record(target, "\x01\x02\x03\x04", 20) + cname_record(kPointer, target)),
      0x1234, "a.test");
  ASSERT_TRUE(both);
  ASSERT_EQ(both->addresses.size(), 1U);
  EXPECT_EQ(both->ttl, 20U);
  EXPECT_TRUE(both->alias.empty());

  const auto alone = parse_response(response(1, cname_record(kPointer, target)), 0x1234, "a.test");
  ASSERT_TRUE(alone);
  EXPECT_TRUE(alone->addresses.empty());
  EXPECT_EQ(alone->alias, "b.test");
}

TEST(DnsResponse, IgnoresWhatWasNotAsked) {
  const auto other = parse_response(response(1, a_record("\x04"
                                                         "evil\x04test\x00"s,
                                                         "\x01\x02\x03\x04")),
                                    0x1234, "a.test");
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->addresses.empty());
}

TEST(DnsResponse, LoopsOfAliasesEnd) {
  const auto loop = parse_response(response(1, cname_record(kPointer, kPointer)), 0x1234, "a.test");
  ASSERT_TRUE(loop);
  EXPECT_TRUE(loop->addresses.empty());
}

TEST(DnsResponse, MustBelongToTheQuery) {
  const std::string good = response(1, a_record(kPointer, "\x01\x02\x03\x04"));
  EXPECT_TRUE(parse_response(good, 0x1234, "a.test"));
  EXPECT_FALSE(parse_response(good, 0x1235, "a.test"));
  EXPECT_FALSE(parse_response(good, 0x1234, "b.test"));
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_FALSE(parse_response(good.substr(0, n), 0x1234, "a.test")) << n;
}

TEST(DnsResponse, ReadsARealQuerysOwnQuestion) {
  const std::string query = build_query(7, "www.example.test");
  const auto read = parse_query(query);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "www.example.test");
  EXPECT_TRUE(read->has_edns);
  EXPECT_EQ(read->udp_size, 1232);
}

}  // namespace
}  // namespace glovebox::egress::dns
