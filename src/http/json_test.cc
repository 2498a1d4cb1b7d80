// SPDX-License-Identifier: Apache-2.0
#include "http/json.h"

#include <gtest/gtest.h>

namespace glovebox::json {
namespace {

std::string why(std::string_view text) {
  auto value = parse(text);
  return value ? "" : value.error().message;
}

TEST(JsonParse, TakesEveryKindOfValue) {
  const auto value =
      parse(R"( {"a":[1,-2,3.5,"\u00e9\ud83d\ude00",true,null],"b":{"c":9223372036854775807}} )")
          .value();
  EXPECT_EQ(to_text(value),
            "{\"a\":[1,-2,3.5E0,\"\xC3\xA9\xF0\x9F\x98\x80\",true,null],\"b\":{\"c\":"
            "9223372036854775807}}");
}

TEST(JsonParse, RefusesWhatTwoReadersCouldReadDifferently) {
  for (const char* bad : {"",
                          " ",
                          "{",
                          "{}x",
                          "{} {}",
                          "{\"a\":1,}",
                          "[1,]",
                          "{'a':1}",
                          "{a:1}",
                          "nul",
                          "01",
                          "1.",
                          ".5",
                          "+1",
                          "NaN",
                          "Infinity",
                          "-",
                          "1e999",
                          "-1e999",
                          "9223372036854775808",
                          "-9223372036854775809",
                          "18446744073709551616",
                          "\"\\ud800\"",
                          "\"\\udc00\\ud800\"",
                          "\"\xFF\"",
                          "\"\xC0\xAF\"",
                          "\"\xED\xA0\x80\"",
                          "\"a\nb\"",
                          "\"\\x41\"",
                          "// c\n1",
                          "/**/1",
                          "{\"a\":1,\"a\":2}",
                          "{\"x\":{\"a\":1,\"b\":2,\"a\":1}}",
                          "\xEF\xBB\xBF{}",
                          "{\"a\":1 \"b\":2}"}) {
    const auto value = parse(bad);
    ASSERT_FALSE(value) << bad;
    EXPECT_EQ(value.error().code, Code::kInvalidArgument);
  }
}

TEST(JsonParse, ComparesKeysAfterTheirEscapesAndPerObject) {
  EXPECT_EQ(why(R"({"a":1,"\u0061":2})"),
            "invalid JSON at line 1, column 15: the key \"a\" is there twice");
  EXPECT_EQ(why(R"({"a":{"a":1},"b":{"a":1}})"), "");
}

TEST(JsonParse, BoundsTheDepth) {
  EXPECT_TRUE(parse(std::string(64, '[') + std::string(64, ']')));
  EXPECT_FALSE(parse(std::string(65, '[') + std::string(65, ']')));
  EXPECT_FALSE(parse(std::string(1 << 20, '[')));
}

TEST(JsonParse, NamesThePosition) {
  EXPECT_TRUE(why("{\n  \"a\": 1,\n  \"b\": x\n}").starts_with("invalid JSON at line 3, column "))
      << why("{\n  \"a\": 1,\n  \"b\": x\n}");
  EXPECT_EQ(why("{}\n !"), "invalid JSON at line 2, column 2: something follows the value");
}

TEST(JsonParse, LongStringsAndNumbersSurvive) {
  const std::string text(300'000, 'x');
  EXPECT_EQ(parse("\"" + text + "\"").value().as_string().size(), text.size());
  EXPECT_EQ(parse("0." + std::string(400, '0') + "1").value().as_double(), 0.0);
  EXPECT_FALSE(parse(std::string(400, '9')));
  const std::string key(5000, 'k');
  EXPECT_TRUE(parse("{\"" + key + "\":1}").value().as_object().contains(key));
}

struct Case {
  const char* text;
  const char* message;
};

TEST(JsonReader, MessagesNameFieldAndRule) {
  const Case cases[] = {
      {R"({"cpus":100})", "limits.cpus: must be a number between 0.05 and 64"},
      {R"({"cpus":"1"})", "limits.cpus: must be a number between 0.05 and 64"},
  };
  for (const Case& c : cases) {
    const auto value = parse(c.text).value();
    Reader r(value, "limits");
    const auto cpus = r.number("cpus", 0.05, 64).required();
    ASSERT_FALSE(cpus);
    EXPECT_EQ(cpus.error().message, c.message);
    EXPECT_EQ(cpus.error().details.at("field"), "limits.cpus");
  }
  const auto value =
      parse(
          R"({"name":1,"n":2.5,"mode":"x","argv":["a",2],"env":{"A":1},"mounts":[{},3],"o":[],"z":"a\u0000b"})")
          .value();
  Reader r(value);
  EXPECT_EQ(r.string("name").required().error().message, "name: must be a string");
  EXPECT_EQ(r.integer("n").required().error().message, "n: must be an integer");
  EXPECT_EQ(r.one_of("mode", {"rw", "ro"}).required().error().message,
            "mode: must be one of: rw, ro");
  EXPECT_EQ(r.strings("argv").required().error().message, "argv: item 1 must be a string");
  EXPECT_EQ(r.string_map("env").required().error().message, "env: the value of A must be a string");
  EXPECT_EQ(r.objects("mounts").required().error().message, "mounts: item 1 must be an object");
  EXPECT_EQ(r.object("o").error().message, "o: must be an object");
  EXPECT_EQ(r.string("z").required().error().message, "z: must not hold a NUL character");
  EXPECT_EQ(r.content("z").required().value(), std::string("a\0b", 3));
  EXPECT_EQ(r.boolean("missing").required().error().message, "missing: is required");
  EXPECT_EQ(r.string("mode", 2, 8).required().error().message,
            "mode: must have between 2 and 8 bytes");
}

TEST(JsonReader, ReadsValuesAndDefaults) {
  const auto value =
      parse(
          R"({"s":"x","i":2.0,"d":3,"b":true,"a":["p","q"],"m":{"K":"v"},"n":null,"o":{"k":7},"l":[{"k":1}]})")
          .value();
  Reader r(value);
  EXPECT_EQ(r.string("s").required().value(), "x");
  EXPECT_EQ(r.integer("i", 0, 5).required().value(), 2);
  EXPECT_EQ(r.number("d").required().value(), 3.0);
  EXPECT_TRUE(r.boolean("b").or_default(false).value());
  EXPECT_EQ(r.strings("a").required().value(), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(r.string_map("m").required().value().at("K"), "v");
  EXPECT_EQ(r.string("n").or_default("d").value(), "d");
  EXPECT_FALSE(r.integer("absent").optional().value().has_value());
  EXPECT_FALSE(r.has("n"));
  auto o = r.object("o").value();
  EXPECT_EQ(o.integer("k").required().value(), 7);
  EXPECT_TRUE(o.done());
  auto items = r.objects("l").required().value();
  EXPECT_EQ(items.at(0).path_of("k"), "l[0].k");
  EXPECT_TRUE(r.object("none").value().done());
  EXPECT_TRUE(r.done());
}

TEST(JsonReader, IntegersKeepAll64Bits) {
  const auto value = parse(R"({"a":9223372036854775807,"b":-9223372036854775808,"c":1e16})").value();
  Reader r(value);
  EXPECT_EQ(r.integer("a").required().value(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(r.integer("b").required().value(), std::numeric_limits<int64_t>::min());
  EXPECT_FALSE(r.integer("c").required());  // a double that does not say which integer it is
}

TEST(JsonReader, RefusesUnknownFieldsAndListsTheKnown) {
  const auto value = parse(R"({"template":"base","tmeout_ms":1})").value();
  Reader r(value);
  ASSERT_TRUE(r.string("template").required());
  ASSERT_TRUE(r.integer("timeout_ms").optional());
  EXPECT_EQ(r.done().error().message,
            "tmeout_ms: is not a known field; these are: template, timeout_ms");
}

TEST(JsonReader, AValueThatIsNoObjectFailsEverywhere) {
  const auto value = parse("[]").value();
  Reader r(value);
  EXPECT_EQ(r.string("a").optional().error().message, "the body: must be an object");
  EXPECT_EQ(r.done().error().code, Code::kInvalidArgument);
  EXPECT_FALSE(parse_object("[]"));
}

}  // namespace
}  // namespace glovebox::json
