// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <gtest/gtest.h>

#include "http/json.h"
#include "http/router.h"
#include "http/sse.h"

namespace glovebox::http {
namespace {

TEST(Percent, DecodesBytesAndRefusesHalfCodes) {
  EXPECT_EQ(percent_decode("a%2Fb%00%ff+"), std::string("a/b\0\xFF+", 6));
  EXPECT_EQ(percent_decode("a+b", true), "a b");
  for (const char* bad : {"%", "%1", "%g0", "%0g", "a%", "%%41"})
    EXPECT_FALSE(percent_decode(bad)) << bad;
  EXPECT_EQ(percent_encode("a/b \xFF~"), "a%2Fb%20%FF~");
}

TEST(Query, KeepsOrderDuplicatesAndBytes) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(parse_query("a=1&a=2&&b&=c&d=x%3Dy+z%&e=%FF"),
            (Pairs{{"a", "1"}, {"a", "2"}, {"b", ""}, {"", "c"}, {"d", "x=y z%"}, {"e", "\xFF"}}));
  EXPECT_TRUE(parse_query("").empty());
}

TEST(Headers, ListsAreReadAcrossLinesWithoutCase) {
  const Headers headers{{"Connection", "close , Upgrade"}, {"connection", "x"}};
  EXPECT_TRUE(header_lists(headers, "CONNECTION", "upgrade"));
  EXPECT_TRUE(header_lists(headers, "Connection", "X"));
  EXPECT_FALSE(header_lists(headers, "Connection", "grade"));
}

TEST(ErrorBody, IsTheOneFormWithHintFromTheTable) {
  Error error{Code::kCapacity, "full \"now\"", {{"limit", "4"}}};
  const auto body = json::parse_object(error_body(error)).value();
  const auto& e = body.as_object().at("error").as_object();
  EXPECT_EQ(e.at("code").as_string(), "capacity");
  EXPECT_EQ(e.at("message").as_string(), "full \"now\"");
  EXPECT_EQ(std::string(e.at("hint").as_string()), info(Code::kCapacity).advice);
  EXPECT_TRUE(e.at("retryable").as_bool());
  EXPECT_EQ(e.at("fault").as_string(), "platform");
  EXPECT_EQ(e.at("details").as_object().at("limit").as_string(), "4");
}

TEST(Sse, SplitsDataAtEveryKindOfLineEnd) {
  EXPECT_EQ(sse_event("out", "a\nb\r\nc\rd", "7"),
            "id: 7\nevent: out\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(sse_event("", ""), "data: \n\n");
  EXPECT_EQ(sse_event("a\nid: 9", "x\n"), "event: a\ndata: x\ndata: \n\n");
}

class RouterTable : public ::testing::Test {
 protected:
  RouterTable() {
    const auto none = [](Exchange&, const Params&) -> Awaitable<void> { co_return; };
    for (const auto& [method, pattern] : kRoutes) router_.add(method, pattern, none);
  }
  static constexpr std::pair<const char*, const char*> kRoutes[] = {
      {"GET", "/"},
      {"GET", "/v1/boxes"},
      {"POST", "/v1/boxes"},
      {"GET", "/v1/boxes/{id}"},
      {"GET", "/v1/boxes/top"},
      {"DELETE", "/v1/boxes/{id}"},
      {"PUT", "/v1/boxes/top/x"},
      {"GET", "/v1/boxes/{id}/f/{file}"},
      {"*", "/p/{port}/{path...}"},
      {"GET", "/s/{path...}"},
      {"GET", "/s/{name}/meta"}};
  Router router_;
};

TEST_F(RouterTable, PrefersTheMostSpecialPattern) {
  const auto pattern = [&](std::string_view method, std::string_view path) {
    auto match = router_.match(method, path);
    return match ? match->pattern : std::string(info(match.error().code).name);
  };
  EXPECT_EQ(pattern("GET", "/"), "/");
  EXPECT_EQ(pattern("GET", "//v1///boxes/"), "/v1/boxes");
  EXPECT_EQ(pattern("GET", "/v1/boxes/top"), "/v1/boxes/top");
  EXPECT_EQ(pattern("DELETE", "/v1/boxes/top"), "/v1/boxes/{id}");
  EXPECT_EQ(pattern("HEAD", "/v1/boxes/7"), "/v1/boxes/{id}");
  EXPECT_EQ(pattern("GET", "/v1/boxes/top/f/a"), "/v1/boxes/{id}/f/{file}");
  EXPECT_EQ(pattern("GET", "/s/x/meta"), "/s/{name}/meta");
  EXPECT_EQ(pattern("GET", "/s/x/metb"), "/s/{path...}");
  EXPECT_EQ(pattern("PATCH", "/p/80"), "/p/{port}/{path...}");
  EXPECT_EQ(pattern("GET", "/v1"), "route_not_found");
  EXPECT_EQ(pattern("GET", "v1/boxes"), "route_not_found");
  EXPECT_EQ(pattern("GET", "*"), "route_not_found");
  EXPECT_EQ(pattern("get", "/v1/boxes"), "method_not_allowed");
  EXPECT_EQ(pattern("GET", "/v1/boxes/%zz"), "invalid_argument");
}

TEST_F(RouterTable, DecodesAfterTheSplit) {
  EXPECT_EQ(router_.match("GET", "/v1/boxes/a%2Fb%2f..").value().params.at("id"), "a/b/..");
  EXPECT_EQ(router_.match("GET", "/v1/b%6Fxes").value().pattern, "/v1/boxes");
  const auto match = router_.match("GET", "/p/80/a%20b//c").value();
  EXPECT_EQ(match.params.at("port"), "80");
  EXPECT_EQ(match.params.at("path"), "a b/c");
  EXPECT_EQ(router_.match("GET", "/v1/boxes/x+y").value().params.at("id"), "x+y");
}

TEST_F(RouterTable, NamesTheMethodsOfAPathAcrossPatterns) {
  EXPECT_EQ(router_.match("PUT", "/v1/boxes").error().details.at("allow"), "GET, HEAD, POST");
  EXPECT_EQ(router_.match("PUT", "/v1/boxes/top").error().details.at("allow"), "DELETE, GET, HEAD");
}

TEST_F(RouterTable, ListsItsRoutes) {
  const auto routes = router_.routes();
  ASSERT_EQ(routes.size(), std::size(kRoutes));
  EXPECT_EQ(routes[3].method, "GET");
  EXPECT_EQ(routes[3].pattern, "/v1/boxes/{id}");
}

}  // namespace
}  // namespace glovebox::http
