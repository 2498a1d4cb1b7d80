// SPDX-License-Identifier: Apache-2.0
#include "code/events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/test_loop.h"
#include "http/json.h"

namespace glovebox::code {
namespace {

TEST(CodeEvents, ReadsWhatTheRunnerSays) {
  const auto start =
      decode_event(R"({"event":"start","count":3,"context":"ctx-1","language":"python"})");
  ASSERT_TRUE(start) << start.error().message;
  EXPECT_EQ(start->kind, Event::Kind::kStart);
  EXPECT_EQ(start->count, 3);
  EXPECT_EQ(start->context, "ctx-1");

  const auto result = decode_event(
      R"({"event":"result","main":true,"data":{"text/plain":"2","application/json":{"a":[1]}},"dropped":["image/png"]})");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->is_main);
  EXPECT_EQ(json::to_text(result->data), R"({"text/plain":"2","application/json":{"a":[1]}})");
  EXPECT_EQ(result->dropped, std::vector<std::string>{"image/png"});

  const auto error = decode_event(
      R"({"event":"error","name":"ValueError","value":"bad","traceback":"t","kind":"died","signal":9})");
  ASSERT_TRUE(error) << error.error().message;
  EXPECT_EQ(error->problem, "died");
  EXPECT_EQ(error->signal, 9);
  EXPECT_EQ(decode_event(R"({"event":"error","kind":"of its own"})")->problem, "exception");

  const auto contexts = decode_contexts(
      R"({"event":"contexts","contexts":[{"id":"a","language":"bash","cwd":"/","running":true}]})");
  ASSERT_TRUE(contexts) << contexts.error().message;
  EXPECT_EQ(contexts->at(0).language, "bash");
  EXPECT_TRUE(contexts->at(0).is_running);
  EXPECT_TRUE(*decode_ok(R"({"event":"ok","interrupted":true})"));
  EXPECT_TRUE(decode_ready(R"({"event":"ready"})"));
}

TEST(CodeEvents, PassesTheRunnersOwnErrorsOn) {
  for (const auto& [name, code] :
       {std::pair("not_found", Code::kNotFound),
        std::pair("invalid_argument", Code::kInvalidArgument),
        std::pair("capacity", Code::kCapacity), std::pair("missing", Code::kUnsupported),
        std::pair("sandbox_not_found", Code::kSandboxIo)}) {
    const auto event =
        decode_event(std::string(R"({"event":"failed","code":")") + name + R"(","message":"why"})");
    ASSERT_FALSE(event);
    EXPECT_EQ(event.error().code, code) << name;
    EXPECT_EQ(event.error().message, "why");
  }
}

TEST(CodeEvents, RefusesWhatIsNone) {
  std::string deep =
      R"({"event":"result","data":{"a":)" + std::string(40, '[') + std::string(40, ']') + "}}";
  std::string many = R"({"event":"result","data":{"a":"")";
  for (int i = 0; i < 64; ++i) many += ",\"k" + std::to_string(i) + "\":1";
  for (const std::string& line :
       {std::string(), std::string("null"), std::string("[]"), std::string("{}"),
        std::string(R"({"event":1})"), std::string(R"({"event":"unheard of"})"),
        std::string(R"({"event":"stdout","text":1})"), std::string(R"({"event":"end","count":-1})"),
        std::string(R"({"event":"end","count":1.5})"), std::string(R"({"event":"result"})"),
        std::string(R"({"event":"result","data":[]})"),
        std::string(R"({"event":"result","data":{"a b":"x"}})"),
        std::string(R"({"event":"result","data":{},"dropped":[1]})"),
        std::string(R"({"event":"result","data":{},"main":1})"),
        std::string(R"({"event":"error","signal":900})"),
        std::string("{\"event\":\"stdout\",\"text\":\"\xff\"}"), deep, many + "}}"}) {
    const auto event = decode_event(line);
    ASSERT_FALSE(event) << line;
    EXPECT_EQ(event.error().code, Code::kSandboxIo) << line;
  }
  EXPECT_FALSE(decode_context(R"({"event":"context","language":"python"})"));
  EXPECT_FALSE(decode_contexts(R"({"event":"contexts","contexts":[1]})"));
  EXPECT_FALSE(decode_ok(R"({"event":"ready"})"));
}

// What a run would say, one after the other; the last for ever.
std::function<Async<Event>()> saying(std::vector<Result<Event>> all) {
  return [all = std::move(all), at = std::make_shared<size_t>(0)]() -> Async<Event> {
    co_return all[std::min((*at)++, all.size() - 1)];
  };
}

TEST(CodeEvents, WithholdsKeepalivesUntilThereIsSomethingToSay) {
  using std::chrono::hours;
  TestLoop loop;
  const Event keepalive, start{.kind = Event::Kind::kStart};
  const Result<Event> gone = fail(Code::kNotFound, "no such context");
  const auto failed = loop.run(first_to_say(saying({keepalive, keepalive, gone}), hours(1)));
  ASSERT_FALSE(
      failed);  // with its own code, which an answer that had begun could not have any more
  EXPECT_EQ(failed.error().code, Code::kNotFound);
  EXPECT_EQ(loop.run(first_to_say(saying({keepalive, keepalive, start}), hours(1)))->kind,
            Event::Kind::kStart);
  EXPECT_EQ(loop.run(first_to_say(saying({start, gone}), hours(1)))->kind, Event::Kind::kStart);
  EXPECT_EQ(loop.run(first_to_say(saying({keepalive}), std::chrono::milliseconds(20)))->kind,
            Event::Kind::kKeepalive);
}

TEST(CodeEvents, WishesAreTheThreeThatThereAre) {
  EXPECT_EQ(decode_wish(R"({"event":"owner"})"), Wish::kOwner);
  EXPECT_EQ(decode_wish(R"({"event":"again"})"), Wish::kAgain);
  EXPECT_EQ(decode_wish(R"({"event": "met"})"), Wish::kMet);
  const std::string padded = R"({"event":"owner"})" + std::string(100, ' ');
  for (const char* other : {R"({"event":"end"})", R"({"event":"failed"})", R"({"event":7})", R"({"owner":"event"})", "owner", "", padded.c_str()}) {
    EXPECT_EQ(decode_wish(other), Wish::kNone) << other;
  }
}

}  // namespace
}  // namespace glovebox::code
