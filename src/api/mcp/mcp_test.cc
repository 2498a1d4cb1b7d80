// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/mcp.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "api/mcp/dispatch.h"
#include "api/mcp/image_type.h"
#include "api/mcp/tool.h"
#include "base/text.h"
#include "sandbox/testing/world.h"

namespace glovebox::api::mcp {
namespace {
namespace bj = boost::json;
using sandbox::testing::World;

TEST(McpMessage, ReadsRequestsNotificationsResponsesAndBatches) {
  const auto request = parse_incoming(R"({"jsonrpc":"2.0","id":7,"method":"ping"})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->messages[0].kind, Message::Kind::kRequest);
  EXPECT_EQ(request->messages[0].id, bj::value(7));
  EXPECT_FALSE(request->is_batch);
  const auto batch =
      parse_incoming(R"([{"jsonrpc":"2.0","method":"n","params":{"a":1}},{"jsonrpc":"2.0","id":"x","result":{}}])");
  ASSERT_TRUE(batch);
  EXPECT_TRUE(batch->is_batch);
  EXPECT_EQ(batch->messages[0].kind, Message::Kind::kNotification);
  EXPECT_EQ(batch->messages[0].params.at("a"), bj::value(1));
  EXPECT_EQ(batch->messages[1].kind, Message::Kind::kResponse);
}

TEST(McpMessage, NamesTheFaultAndTheMessage) {
  const struct {
    const char* text;
    int code;
    bj::value id;
  } table[] = {{"", RpcError::kParse, nullptr},
               {"{", RpcError::kParse, nullptr},
               {R"({"jsonrpc":"2.0","id":1,"id":2,"method":"m"})", RpcError::kParse, nullptr},
               {"[]", RpcError::kInvalidRequest, nullptr},
               {"5", RpcError::kInvalidRequest, nullptr},
               {R"({"id":1,"method":"m"})", RpcError::kInvalidRequest, 1},
               {R"({"jsonrpc":"1.0","id":1,"method":"m"})", RpcError::kInvalidRequest, 1},
               {R"({"jsonrpc":"2.0","id":null,"method":"m"})", RpcError::kInvalidRequest, nullptr},
               {R"({"jsonrpc":"2.0","id":1.5,"method":"m"})", RpcError::kInvalidRequest, nullptr},
               {R"({"jsonrpc":"2.0","id":"a","method":5})", RpcError::kInvalidRequest, "a"},
               {R"({"jsonrpc":"2.0","id":1,"method":"m","params":[1]})", RpcError::kInvalidRequest, 1},
               {R"({"jsonrpc":"2.0","id":1})", RpcError::kInvalidRequest, 1},
               {R"({"jsonrpc":"2.0","id":1,"result":{},"error":{}})", RpcError::kInvalidRequest, 1}};
  for (const auto& row : table) {
    const auto parsed = parse_incoming(row.text);
    ASSERT_FALSE(parsed) << row.text;
    EXPECT_EQ(parsed.error().code, row.code) << row.text;
    EXPECT_EQ(parsed.error().id, row.id) << row.text;
  }
}

TEST(McpMessage, BoundsBatchesAndIds) {
  std::string batch = "[";
  for (size_t i = 0; i < kMaxBatch + 1; ++i) batch += (i == 0 ? "" : ",") + std::string(R"({"jsonrpc":"2.0","method":"n"})");
  EXPECT_FALSE(parse_incoming(batch + "]"));
  EXPECT_FALSE(parse_incoming(R"({"jsonrpc":"2.0","method":"m","id":")" + std::string(257, 'x') + "\"}"));
  EXPECT_TRUE(parse_incoming(R"({"jsonrpc":"2.0","method":"m","id":")" + std::string(256, 'x') + "\"}"));
}

TEST(McpVersions, TheNewestIsOfferedToClientsOfAnother) {
  EXPECT_EQ(negotiate({{"protocolVersion", "2025-03-26"}}), Version::k2025_03_26);
  EXPECT_EQ(negotiate({{"protocolVersion", "2025-06-18"}}), Version::k2025_06_18);
  EXPECT_EQ(negotiate({{"protocolVersion", "2099-01-01"}}), kNewestVersion);
  EXPECT_EQ(negotiate({}), kNewestVersion);
}

TEST(McpStream, KeepsEveryResponseAndTheNewestNotifications) {
  Stream stream("s", 2);
  for (int i = 0; i < 100; ++i) stream.notify(std::to_string(i));
  stream.respond("first");
  EXPECT_FALSE(stream.is_complete());
  stream.drop_response();
  EXPECT_TRUE(stream.is_complete());
  EXPECT_EQ(stream.next(0)->text, "84");
  EXPECT_EQ(stream.next(100)->text, "first");
  EXPECT_EQ(stream.next(101), nullptr);
  EXPECT_EQ(stream.bytes(), 16 * 2 + 5u);
  const auto place = parse_event_id(event_id(stream, 101));
  EXPECT_EQ(place->stream, "s");
  EXPECT_EQ(place->number, 101u);
  for (const char* text : {"", ".", "s", "s.", ".1", "s.-1", "s.x"}) EXPECT_FALSE(parse_event_id(text)) << text;
}

TEST(McpImage, KnowsTheFourKindsByTheirBytes) {
  using namespace std::string_view_literals;
  EXPECT_EQ(image_type("\x89PNG\r\n\x1a\n...."sv), "image/png");
  EXPECT_EQ(image_type("\xff\xd8\xff\xe0"sv), "image/jpeg");
  EXPECT_EQ(image_type("GIF89a"sv), "image/gif");
  EXPECT_EQ(image_type("RIFF\x10\0\0\0WEBPVP8 "sv), "image/webp");
  EXPECT_EQ(image_type("RIFF\x10\0\0\0WAVEfmt "sv), "");
  EXPECT_EQ(image_type("RIFF"sv), "");
  EXPECT_EQ(image_type("<svg>"sv), "");
}

// The schema that a model reads and the fields that the code takes are the same.
TEST(McpTools, SchemasAndCodeAgree) {
  World world;
  code::Interpreter interpreter(world.manager());
  const Settings settings;
  for (const Tool& tool : all_tools()) {
    const auto schema = describe(tool, kNewestVersion);
    std::set<std::string> described, taken;
    for (const auto& property : schema.at("inputSchema").at("properties").as_object()) described.insert(property.key());
    bj::object arguments{{"no_such_field", 1}};
    // What is required comes first, so that the unknown field is what is wrong.
    if (const auto* required = schema.at("inputSchema").as_object().if_contains("required")) {
      for (const auto& name : required->as_array()) {
        const auto& type = schema.at("inputSchema").at("properties").at(name.as_string()).at("type");
        arguments[name.as_string()] = type == "integer" ? bj::value(1) : bj::value("x");
      }
    }
    if (tool.name == "exec") arguments["command"] = "x";
    world.run([&]() -> Awaitable<void> {
      auto session = std::make_shared<Session>("s", world.caller, kNewestVersion, world.manager(), settings, "m");
      session->conversation.use_as_own("sb-none");
      ToolCall call{world.manager(), interpreter, world.manager().snapshots(), nullptr, session, world.caller, {}, std::make_shared<Running>(), arguments, {}};
      const auto result = co_await tool.run(call);
      EXPECT_FALSE(result) << tool.name;
      if (result) co_return;
      const std::string& message = result.error().message;
      EXPECT_EQ(result.error().code, Code::kInvalidArgument) << tool.name << ": " << message;
      const size_t colon = message.rfind(": ");
      for (const std::string& word : split(message.substr(colon + 2), ','))
        taken.insert(word.substr(word.find_first_not_of(' ')));
    });
    EXPECT_EQ(described, taken) << tool.name;
  }
}

TEST(McpTools, DescriptionsAreComplete) {
  std::set<std::string_view> names;
  for (const Tool& tool : all_tools()) {
    EXPECT_TRUE(names.insert(tool.name).second) << tool.name;
    EXPECT_GT(tool.description.size(), 40u) << tool.name;
    EXPECT_FALSE(tool.is_read_only && tool.is_destructive) << tool.name;
    const auto old = describe(tool, Version::k2025_03_26), now = describe(tool, Version::k2025_06_18);
    EXPECT_FALSE(old.contains("outputSchema") || old.contains("title")) << tool.name;
    EXPECT_TRUE(now.contains("outputSchema") && now.contains("title")) << tool.name;
  }
}

TEST(McpTools, ErrorsCarryTheirCodeAndAdvice) {
  const auto result = error_result(Error{Code::kSandboxNotFound, "no sandbox 'x'", {{"why", "gone"}}});
  EXPECT_TRUE(result.at("isError").as_bool());
  EXPECT_EQ(result.at("_meta").at("glovebox/error").at("code").as_string(), "sandbox_not_found");
  const std::string text(result.at("content").at(0).at("text").as_string());
  EXPECT_NE(text.find("sandbox_not_found: no sandbox 'x'"), text.npos) << text;
  EXPECT_NE(text.find("why: gone"), text.npos) << text;
  EXPECT_FALSE(result.contains("structuredContent"));
}

TEST(McpSession, CancelsWhatComesLaterToo) {
  World world;
  const Settings settings;
  Session session("s", world.caller, kNewestVersion, world.manager(), settings, "m");
  session.cancel(bj::value(1));
  const auto late = session.begin_request(bj::value(1));
  ASSERT_TRUE(late);
  EXPECT_TRUE((*late)->is_cancelled());
  const auto running = session.begin_request(bj::value("1"));  // another id: a string
  ASSERT_TRUE(running);
  EXPECT_FALSE((*running)->is_cancelled());
  int stopped = 0;
  (*running)->on_cancel([&] { ++stopped; });
  EXPECT_EQ(session.begin_request(bj::value("1")).error().code, Code::kConflict);
  session.cancel(bj::value("1"));
  session.cancel(bj::value("1"));
  EXPECT_EQ(stopped, 1);
}

TEST(McpSession, BoundsRequestsUnderWay) {
  World world;
  const Settings settings;
  Session session("s", world.caller, kNewestVersion, world.manager(), settings, "m");
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(session.begin_request(bj::value(i)));
  EXPECT_EQ(session.begin_request(bj::value(16)).error().code, Code::kCapacity);
  session.end_request(bj::value(3));
  EXPECT_TRUE(session.begin_request(bj::value(16)));
}

Settings small() {
  Settings settings;
  settings.max_sessions = 2;
  settings.session_timeout = std::chrono::milliseconds(50);
  return settings;
}

TEST(McpSessions, BelongToTheirKey) {
  World world;
  Sessions sessions(world.manager(), small(), world.executor());
  world.run([&]() -> Awaitable<void> {
    const auto session = sessions.begin(world.caller, kNewestVersion);
    EXPECT_EQ(sessions.find(world.caller, (*session)->id(), kNewestVersion), *session);
    auto other = world.caller;
    other.key_id = "another";
    EXPECT_EQ(sessions.find(other, (*session)->id(), kNewestVersion), nullptr);
    EXPECT_EQ(sessions.find(world.caller, "mcp-" + std::string(40, 'a'), kNewestVersion), nullptr);
    co_await sessions.end(*session);
    EXPECT_EQ(sessions.find(world.caller, (*session)->id(), kNewestVersion), nullptr);
  });
}

TEST(McpSessions, AreBoundedAndUnusedOnesMakeRoom) {
  World world;
  Sessions sessions(world.manager(), small(), world.executor());
  world.run([&]() -> Awaitable<void> {
    const auto first = *sessions.begin(world.caller, kNewestVersion);
    const auto second = *sessions.begin(world.caller, kNewestVersion);
    (void)second->begin_request(bj::value(1));  // busy
    EXPECT_TRUE(sessions.begin(world.caller, kNewestVersion));
    EXPECT_EQ(sessions.find(world.caller, first->id(), kNewestVersion), nullptr);
    auto other = world.caller;
    other.key_id = "another";
    EXPECT_EQ(sessions.begin(other, kNewestVersion).error().code, Code::kCapacity);
    co_return;
  });
}

TEST(McpSessions, UnusedOnesEndWithTheirSandboxes) {
  bool is_in_time = false;
  // Its sandbox may be idle for as long as a session may be unused: where the machine stands still for longer than the first time,
  // that sandbox is over before the test has come to it.
  for (const int time_ms : {50, 2000, 20'000}) {
    World world;
    Settings settings = small();
    settings.session_timeout = std::chrono::milliseconds(time_ms);
    Sessions sessions(world.manager(), settings, world.executor());
    std::string id;
    world.run([&]() -> Awaitable<void> {
      const auto session = *sessions.begin(world.caller, kNewestVersion);
      EXPECT_TRUE(session->begin_request(bj::value(1)));  // it is used meanwhile
      const auto place = co_await session->conversation.place(world.caller, "");
      sandbox::Update lasting;
      lasting.idle_timeout = sandbox::Millis(0);
      if (place) is_in_time = (co_await world.manager().update(world.caller, place->id, lasting)).has_value();
      if (!is_in_time) co_return co_await sessions.end(session);
      id = place->id;
      EXPECT_EQ((co_await session->conversation.place(world.caller, ""))->id, id);
      session->end_request(bj::value(1));
      EXPECT_TRUE(co_await channel::testing::eventually([&] { return sessions.size() == 0; }));
      EXPECT_TRUE(co_await channel::testing::eventually([&] { return world.info(id).state == sandbox::State::kEnded; }));
    });
    if (!is_in_time) continue;
    EXPECT_EQ(world.info(id).ended->reason, "killed");
    break;
  }
  EXPECT_TRUE(is_in_time);
}

TEST(McpSessions, AreTakenUpAgainAfterTheDaemonWasReplaced) {
  World world;
  std::string session_id, sandbox_id;
  {
    Sessions sessions(world.manager(), Settings(), world.executor());
    world.run([&]() -> Awaitable<void> {
      const auto session = *sessions.begin(world.caller, kNewestVersion);
      session_id = session->id();
      sandbox_id = (co_await session->conversation.place(world.caller, ""))->id;
    });
  }
  world.restart();
  Sessions sessions(world.manager(), Settings(), world.executor());
  world.run([&]() -> Awaitable<void> {
    auto other = world.caller;
    other.key_id = "another";
    EXPECT_EQ(sessions.find(other, session_id, kNewestVersion), nullptr);
    const auto session = sessions.find(world.caller, session_id, Version::k2025_06_18);
    EXPECT_TRUE(session);
    if (!session) co_return;
    EXPECT_EQ((co_await session->conversation.place(world.caller, ""))->id, sandbox_id);
    co_await sessions.end(session);
    EXPECT_EQ(world.info(sandbox_id).state, sandbox::State::kEnded);
    EXPECT_EQ(sessions.find(world.caller, session_id, kNewestVersion), nullptr);
  });
}

TEST(McpConversation, SaysWhenItsSandboxWasReplaced) {
  World world;
  const Settings settings;
  Conversation conversation(world.manager(), settings, "mark");
  world.run([&]() -> Awaitable<void> {
    const auto first = co_await conversation.place(world.caller, "");
    EXPECT_NE(first->note, "");
    EXPECT_EQ((co_await conversation.place(world.caller, ""))->note, "");
    (void)co_await world.manager().kill(world.caller, first->id);
    const auto second = co_await conversation.place(world.caller, "");
    EXPECT_NE(second->id, first->id);
    EXPECT_NE(second->note.find("killed"), std::string::npos) << second->note;
    co_await conversation.end(world.caller);
    EXPECT_EQ((co_await conversation.place(world.caller, "")).error().code, Code::kCancelled);
  });
}

}  // namespace
}  // namespace glovebox::api::mcp
